"""Whether a model's directory has what transformers loads, before minutes go into it."""

import json
from pathlib import Path

from safetensors import SafetensorError, safe_open

from colocated_runtime.planner import config_file
from colocated_runtime.worker.errors import UserError

WAY_OUT = "give a directory as transformers' save_pretrained writes it"
INDEX = "model.safetensors.index.json"


def refuse_incomplete(path: Path, field: str, source: str) -> None:
    """Raise UserError, naming `field`, unless configuration and all weights are there and whole by their headers."""
    where = f"{field}: {source}"
    if not path.is_dir():
        raise UserError(f"{where} is no directory; {WAY_OUT}")
    config = path / config_file.NAME
    if not config.exists():
        what = "an adapter without its model" if (path / "adapter_config.json").exists() else f"no {config.name}"
        raise UserError(f"{where} has {what}; {WAY_OUT}")
    try:
        config_file.read_config(config)
    except config_file.NoConfig as error:
        raise UserError(f"{where}: {error}") from error
    names = _indexed(path, where) or sorted(file.name for file in path.glob("*.safetensors"))
    if not names and not list(path.glob("*.bin")):
        raise UserError(f"{where} has no weights, neither *.safetensors nor *.bin; {WAY_OUT}")
    for name in names:
        try:
            with safe_open(path / name, framework="pt"):
                pass
        except FileNotFoundError:
            raise UserError(f"{where} lacks {name}, which its {INDEX} names; copy it there") from None
        except SafetensorError as error:
            raise UserError(f"{where}: {name} is cut off or damaged ({error}); copy it again") from None


def _indexed(path: Path, where: str) -> list[str]:
    """The files that the index names; none without an index."""
    index = path / INDEX
    if not index.exists():
        return []
    try:
        return sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{where}: {INDEX} is damaged ({error!r}); copy it again") from None
