"""`colocated watch`: follows a job in the cluster."""

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from colocated_operator.cli import view
from colocated_operator.cli.display import Display
from colocated_operator.cli.document import USAGE, Mistakes, refuse_empty, told
from colocated_runtime.contract import names
from colocated_runtime.contract.status import JobStatus

if TYPE_CHECKING:
    from colocated_operator.kube import Kube

POLL_SECONDS = 1.0
PATIENCE_SECONDS = 60.0
"""An API server that does not answer for longer ends the watch."""
ENDED = {"Complete": 0, "Failed": 1}


def watch(
    name: Annotated[str, typer.Argument(help="Name of the ColocatedRLJob.")],
    namespace: Annotated[
        str | None, typer.Option("-n", "--namespace", help="Default: that of the current context.")
    ] = None,
) -> None:
    """Follow a job in the cluster until it is complete (exit code 0) or failed (1). Ctrl-C leaves the job alone."""
    with told():
        refuse_empty(namespace=namespace)
        if not name.strip():
            raise Mistakes("NAME: is empty; give that of a ColocatedRLJob")
    try:
        from colocated_operator.kube import Kube
    except ImportError as error:
        typer.echo(f"error: {error.name} is missing: uv pip install '.[operator]' in the project's directory", err=True)
        raise typer.Exit(USAGE) from None
    from kubernetes.config import ConfigException

    try:
        kube = Kube()
        namespace = namespace or current_namespace()
    except ConfigException as error:
        typer.echo(f"error: no cluster: {error}; set KUBECONFIG", err=True)
        raise typer.Exit(USAGE) from None
    try:
        code = asyncio.run(_follow(kube, namespace, name, Console()))
    except KeyboardInterrupt:
        typer.echo(f"the job goes on; colocated watch {name} -n {namespace} follows it again")
        raise typer.Exit(130) from None
    raise typer.Exit(code)


def current_namespace() -> str:
    """The namespace of the current context of the kubeconfig."""
    from kubernetes import config

    _, context = config.list_kube_config_contexts()
    return str(context.get("context", {}).get("namespace") or "default")


async def _follow(kube: "Kube", namespace: str, name: str, console: Console) -> int:
    with Display(name, console) as display:
        while True:
            found = await _get(kube, namespace, name)
            if found is None:
                display.say(f"there is no {names.KIND} {name} in namespace {namespace}")
                return 1
            status = JobStatus.model_validate(found.get("status") or {})
            display.show(view.of_status(status))
            if status.phase in ENDED and _is_current(found, status):
                break
            await asyncio.sleep(POLL_SECONDS)
    for line in view.closing_words_of_status(status):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return ENDED[status.phase]


def _is_current(found: dict[str, Any], status: JobStatus) -> bool:
    """Whether the status speaks of the spec as it is now, not of one that the user has just mended."""
    return status.observed_generation >= int(found["metadata"].get("generation", 0))


async def _get(kube: "Kube", namespace: str, name: str) -> dict[str, Any] | None:
    """The object; an API server that is away for a moment is asked again."""
    from colocated_operator.kube import KubeError

    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return await kube.get(names.KIND, namespace, name)
        except KubeError as error:
            if error.code in (401, 403) or time.monotonic() > deadline:
                typer.echo(f"error: {error.message}", err=True)
                raise typer.Exit(1) from None
            await asyncio.sleep(POLL_SECONDS)
