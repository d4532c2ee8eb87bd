"""Pure judgements that `decide` is made of: how an attempt ended, and what follows."""
