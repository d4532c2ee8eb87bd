"""`colocated render`: the objects that the operator would create for a job, to be looked at before they are."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from colocated_operator.cli.document import Document, Mistakes, read, refuse_empty, told
from colocated_operator.cli.model import refuse, warn
from colocated_operator.desired import AttemptPlan, objects
from colocated_operator.policies.planning import planned
from colocated_operator.settings import Settings
from colocated_runtime.contract import grace
from colocated_runtime.contract.rules import IMAGE

UID = "00000000-0000-0000-0000-000000000000"
"""In the place of the object's uid, which the API server gives; its first five characters are in every name."""


def render(
    file: Annotated[Path, typer.Argument(help="YAML with a ColocatedRLJob.")],
    image: Annotated[
        str | None,
        typer.Option(envvar="COLOCATED_RUNTIME_IMAGE", help="The operator's runtimeImage, for a job that names none."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Which job, where the file holds several.")] = None,
    namespace: Annotated[
        str | None, typer.Option("-n", "--namespace", help="Of a job that names none. Default: default")
    ] = None,
) -> None:
    """Print what the operator would create for a job's first attempt: ConfigMap, Service, claim and Job.

    Names and owner references hold an object's uid; here it is all zeros. Exit code: 2 for a mistake in the file.
    """
    with told():
        refuse_empty(image=image)
        bodies = rendered(file, read(file, name, namespace), image)
    typer.echo(yaml.dump_all(bodies, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True), nl=False)


def rendered(file: Path, document: Document, image: str | None) -> list[dict[str, Any]]:
    """The objects in the order in which they are created. Raise Mistakes."""
    spec = document.spec
    refuse(file, spec)
    warn(file, spec)
    if not (spec.runtime.image or image):
        raise Mistakes(f"{file}: spec.runtime.image: not said; give the operator's by --image, or set it in the file")
    if image and not re.fullmatch(IMAGE, image):
        raise Mistakes(f"--image: {image!r} is no reference; use e.g. registry.example/team/name:tag")
    memory_plan = planned(spec)
    if memory_plan and not memory_plan.fits:
        raise Mistakes(f"{file}: nothing would be created: {memory_plan.refusal}")
    plan = AttemptPlan(
        name=document.name,
        namespace=document.namespace,
        uid=UID,
        generation=1,
        labels=document.labels,
        spec=spec,
        settings=Settings(runtime_image=image or "", namespaces=()),
        attempt=1,
        restart_count=0,
        seconds_left=spec.active_deadline_seconds,
        memory=memory_plan,
        grace_seconds=grace.period_seconds({}, memory_plan),
    )
    try:
        bodies = (objects.config_map(plan), objects.service(plan), objects.volume_claim(plan), objects.job(plan))
    except ValueError as error:
        raise Mistakes(f"{file}: spec.{error}") from error
    return [body for body in bodies if body]


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as they are, and equal parts out instead of as anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
