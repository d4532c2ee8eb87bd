"""Tables of a document that a script computes: each stands between two comments that name it."""

import argparse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

Tables = Mapping[str, Callable[[], Iterator[str]]]
"""Lines of Markdown, by the table's name in the document."""


def with_tables(document: str, tables: Tables) -> str:
    """`document` with the tables in their places."""
    for name, table in tables.items():
        begin, end = f"<!-- table: {name} -->\n", f"<!-- end of table: {name} -->\n"
        before, _, rest = document.partition(begin)
        _, _, after = rest.partition(end)
        lines = "\n".join(table())
        document = f"{before}{begin}{lines}\n{end}{after}"
    return document


def main(description: str | None, path: Path, tables: Tables) -> None:
    """Print the tables, or with --write put them into the document at `path`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"put the tables into {path.parent.name}/{path.name}")
    if parser.parse_args().write:
        path.write_text(with_tables(path.read_text(encoding="utf-8"), tables), encoding="utf-8")
        return
    for table in tables.values():
        print("\n".join(table()), end="\n\n")
