"""The job's model as far as it is known on this machine, and what the job asks of it that it cannot have."""

from contextlib import suppress
from pathlib import Path

import typer

from colocated_operator.cli.document import Mistakes
from colocated_runtime.contract import uris
from colocated_runtime.contract.job import JobSpec, Model
from colocated_runtime.contract.options import unknown
from colocated_runtime.contract.refusals import refusals
from colocated_runtime.planner import config_file
from colocated_runtime.planner.agreement import disagreements
from colocated_runtime.planner.shapes import Shape, shape_of


def refuse(file: Path, spec: JobSpec, config: Path | None = None, *, planned: bool = False) -> Shape | None:
    """The model's shape where it is known: from `config`, its own directory on this machine, or the spec.

    Raise Mistakes for all that is wrong with `spec`, by itself and for its model; and, where it is to be `planned`, for
    a model's directory that cannot be: it may well run.
    """
    found = refusals(spec)
    shape = None
    if not found and spec.model and not spec.runtime.command:
        path = config or _local_config(spec.model)
        try:
            shape = config_file.read_shape(path) if path else shape_of(spec.model)
        except config_file.NoConfig as error:
            raise Mistakes(str(error)) from error
        except ValueError as error:
            if planned or path is None:
                raise Mistakes(str(error) if path else f"{file}: spec.model.shape: {error}") from error
        found = disagreements(spec, shape) if shape else []
    if found:
        raise Mistakes(*(f"{file}: spec.{line}" for line in found))
    return shape


def warn(file: Path, spec: JobSpec) -> None:
    """Say what may be a slip: an image of the user's may carry a TRL that has other options."""
    if spec.runtime.image and not spec.runtime.command:
        for line in unknown(spec.trainer, spec.algorithm):
            typer.echo(f"warning: {file}: spec.{line} (that of runtime.image may have it)", err=True)


def _local_config(model: Model) -> Path | None:
    source = uris.parse(model.source)
    if source.scheme != "file":
        return None
    path = Path(source.path) / config_file.NAME
    with suppress(OSError):  # such as a name that is too long
        return path if path.exists() else None
    return None
