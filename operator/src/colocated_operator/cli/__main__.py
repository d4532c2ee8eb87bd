"""`python -m colocated_operator.cli`."""

from colocated_operator.cli import main

main()
