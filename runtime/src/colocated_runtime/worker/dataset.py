"""The job's prompts: from any source to rows with a `prompt`, the other columns kept for the rewards."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import datasets

from colocated_runtime.contract.job import Dataset as DatasetSpec
from colocated_runtime.worker import reasoning_gym
from colocated_runtime.worker.errors import UserError
from colocated_runtime.worker.sources import Sources
from colocated_runtime.worker.text_file import silent_flaw, text_flaw

FORMATS = {".json": "json", ".jsonl": "json", ".parquet": "parquet", ".csv": "csv"}
REWARD_ARGUMENTS = ("prompts", "completions", "trainer_state", "log_extra", "log_metric", "environments")
"""What TRL gives a reward function besides the columns."""


def load_prompts(spec: DatasetSpec, sources: Sources, field: str, *, limit: int | None = None) -> datasets.Dataset:
    """Rows of `spec`, at most `limit`, with `prompt` as text or chat messages. Raise UserError naming `field`."""
    rows = _read(spec, sources, field)
    count = min(n for n in (len(rows), spec.max_samples, limit) if n is not None)
    if count == 0:
        raise UserError(f"{field}: {spec.source} has no rows")
    rows = rows.select(range(count))
    try:
        prompts = [_prompt(spec, row, index, field) for index, row in enumerate(rows)]
    except UnicodeDecodeError as error:  # rows are decoded only now
        raise _unreadable(spec, sources, field, error) from error
    rows = _without_clashes(rows, spec, field)
    if rows.column_names in (["prompt"], []):  # without its only column a dataset has no rows
        return datasets.Dataset.from_dict({"prompt": prompts})
    if "prompt" in rows.column_names:
        rows = rows.remove_columns("prompt")
    return rows.add_column("prompt", prompts)


def _without_clashes(rows: datasets.Dataset, spec: DatasetSpec, field: str) -> datasets.Dataset:
    """`rows` whose columns TRL can hand to the rewards beside what it gives them itself."""
    taken = [name for name in rows.column_names if name in REWARD_ARGUMENTS]
    ours = [name for name in taken if name == spec.prompt_column and not spec.prompt_template]
    others = [name for name in taken if name not in ours]
    if others:
        raise UserError(
            f"{field}.source: {spec.source} has a column {others[0]!r}, a name under which rewards get something else;"
            " rename the column in the data"
        )
    return rows.remove_columns(ours)


def _read(spec: DatasetSpec, sources: Sources, field: str) -> datasets.Dataset:
    if spec.source.startswith("reasoning-gym://"):
        return datasets.Dataset.from_list(reasoning_gym.rows(spec.source, f"{field}.source"))
    path = sources.local("dataset", spec.source, f"{field}.source", spec.revision)
    try:
        if (path / "state.json").exists():
            return datasets.load_from_disk(str(path))
        if (path / "dataset_dict.json").exists():
            return _split(datasets.load_from_disk(str(path)), spec.split, field)
        return _load(path, spec, field)
    except UserError:
        raise
    except Exception as error:
        raise _unreadable(spec, sources, field, error) from error


def _unreadable(spec: DatasetSpec, sources: Sources, field: str, error: Exception) -> UserError:
    path = sources.local("dataset", spec.source, f"{field}.source", spec.revision)
    found = _flaw(path, sorted(path.rglob("*")) if path.is_dir() else [path], text_flaw)
    if found:
        return UserError(f"{field}.source: {spec.source}{found}")
    return UserError(f"{field}: cannot read {spec.source}, split {spec.split!r}: {_cause(error)}")


def _flaw(path: Path, files: Iterable[Path], flaw: Callable[[Path], str]) -> str:
    """What `flaw` finds in one of the files at `path`, behind the file's name in a directory; empty where nothing."""
    for file in files:
        if found := flaw(file):
            inside = f", {os.path.relpath(file, path)}" if path.is_dir() else ""
            return f"{inside}: {found}"
    return ""


def _cause(error: BaseException) -> str:
    """The first line of what the innermost error says: the outer ones say that there was one."""
    while error.__cause__:
        error = error.__cause__
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _load(path: Path, spec: DatasetSpec, field: str) -> datasets.Dataset:
    if path.is_dir():
        builder = datasets.load_dataset_builder(str(path), name=spec.config)
    elif path.suffix in FORMATS:
        builder = datasets.load_dataset_builder(FORMATS[path.suffix], data_files=str(path))
    else:
        raise UserError(f"{field}.source: {spec.source} is none of {', '.join(FORMATS)} nor a directory")
    files = [Path(file) for of_split in (builder.config.data_files or {}).values() for file in of_split]
    found = _flaw(path, files, silent_flaw)
    if found:
        raise UserError(f"{field}.source: {spec.source}{found}")
    builder.download_and_prepare()
    return builder.as_dataset(split=spec.split)


def _split(saved: datasets.DatasetDict, split: str, field: str) -> datasets.Dataset:
    if split not in saved:
        raise UserError(f"{field}.split: no {split!r} in the saved dataset; it has {', '.join(saved)}")
    return saved[split]


def _prompt(spec: DatasetSpec, row: dict[str, Any], index: int, field: str) -> str | list[dict[str, str]]:
    content = _fill(spec, row, index, field) if spec.prompt_template else _column(spec, row, field)
    if not content or (isinstance(content, str) and not content.strip()):
        raise UserError(f"{field}: the prompt of row {index} is empty")
    system = [{"role": "system", "content": spec.system_prompt}] if spec.system_prompt else []
    if isinstance(content, list):
        return system + [_turn(turn, f"{field}.promptColumn: row {index}, turn {n}") for n, turn in enumerate(content)]
    if not isinstance(content, str):
        raise UserError(
            f"{field}.promptColumn: {spec.prompt_column!r} holds {type(content).__name__}, neither text nor a list of"
            " chat messages; use promptTemplate to build the prompt"
        )
    if spec.conversational:
        return [*system, {"role": "user", "content": content}]
    if system:
        raise UserError(f"{field}.systemPrompt needs a chat: set conversational: true, or put it into promptTemplate")
    return content


def _turn(turn: Any, place: str) -> dict[str, str]:
    """Raise UserError for what chat templates would fail on: Arrow gives a turn without content the content None."""
    found = {name: turn.get(name) if isinstance(turn, dict) else None for name in ("role", "content")}
    for name, value in found.items():
        if not isinstance(value, str):
            raise UserError(
                f'{place}: {turn!r:.200} has no {name} of text; a chat message is {{"role": "user", "content": "…"}}'
            )
    return {name: str(value) for name, value in found.items()}


def _column(spec: DatasetSpec, row: dict[str, Any], field: str) -> Any:
    if spec.prompt_column not in row:
        raise UserError(
            f"{field}.promptColumn: no column {spec.prompt_column!r} in {spec.source}; it has {', '.join(row)}."
            " Name one of these, or set promptTemplate"
        )
    return row[spec.prompt_column]


def _fill(spec: DatasetSpec, row: dict[str, Any], index: int, field: str) -> str:
    assert spec.prompt_template is not None
    try:
        return spec.prompt_template.format_map(row)
    except KeyError as error:
        raise UserError(
            f"{field}.promptTemplate: no column {error.args[0]!r} in {spec.source}; it has {', '.join(row)}"
        ) from error
    except (ValueError, TypeError, IndexError, AttributeError) as error:
        raise UserError(
            f"{field}.promptTemplate: row {index}: {error}; write {{column}} for a column and {{{{ }}}} for braces"
        ) from error
