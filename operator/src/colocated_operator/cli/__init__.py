"""`colocated` on the command line, also as `kubectl colocated`."""

import typer

from colocated_operator.cli.plan import plan
from colocated_operator.cli.render import render
from colocated_operator.cli.run import run
from colocated_operator.cli.watch import watch

app = typer.Typer(
    help="Colocated RL jobs: TRL trains and vLLM generates in the same processes on the same GPUs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(plan)
app.command()(render)
app.command()(run)
app.command()(watch)


def main() -> None:
    """The program's entry."""
    app()
