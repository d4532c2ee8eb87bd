"""Downloads a job's hf:// sources, once a node: `python -m colocated_runtime.launcher.fetch`.

A process of its own, so that the launcher can end it at any time and its memory is given back.
"""

import errno
import json
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import httpx
import structlog
from huggingface_hub import HfApi, is_offline_mode, snapshot_download
from huggingface_hub.constants import ENDPOINT
from huggingface_hub.errors import (
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RevisionNotFoundError,
)
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_exponential_jitter

from colocated_runtime.contract.attempt import Attempt
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.files import replace_text
from colocated_runtime.launcher.environment import Environment, attempt_file
from colocated_runtime.launcher.log import configure_log
from colocated_runtime.launcher.sources import FetchState, HubSource, hub_sources

ATTEMPTS = 8
LONGEST_WAIT = 300.0
"""Seconds; a hub that asks for more patience than this is asked again earlier."""
PATIENCE_STATUS = (408, 429)
"""Besides every 5xx: networks before a hub have numbers of their own."""
OTHER_FORMATS = ["*.bin", "*.pt", "*.pth", "*.ckpt", "*.gguf", "*.h5", "*.msgpack", "*.onnx", "*.tflite", "*.ot"]
"""The same weights again; left out where a model has safetensors."""

log = structlog.get_logger()


def fetch(source: HubSource, cache: Path | None, tell: Callable[[str], None]) -> str:
    """Download a source, again and again while the hub is not well; return its directory.

    `cache` None: Hugging Face's own default. `tell` is told what goes on. Raises the last error.
    """
    backoff = wait_exponential_jitter(initial=1, max=60)

    def wait(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        seconds = min(LONGEST_WAIT, max(backoff(state), retry_after(error) if error else 0.0))
        tell(f"{source.field}: the hub does not give {source.name} now, next try in {seconds:.0f} s: {_line(error)}")
        return seconds

    tell(f"downloading {source.name} ({source.field})")
    retry = Retrying(retry=retry_if_exception(is_transient), stop=stop_after_attempt(ATTEMPTS), wait=wait, reraise=True)
    return retry(_download, source, cache)


def _download(source: HubSource, cache: Path | None) -> str:
    # The user's own token or none: never one that lies in some home directory.
    token = os.environ.get("HF_TOKEN") or False
    download = partial(
        snapshot_download, source.repo, repo_type=source.kind, revision=source.revision, cache_dir=cache, token=token
    )
    if source.kind == "dataset":
        return download()
    if is_offline_mode():
        return _cached(download)
    try:
        files = HfApi(token=token).list_repo_files(source.repo, revision=source.revision)
    except Exception as error:
        if is_transient(error):  # what an earlier attempt has downloaded does as well
            with suppress(LocalEntryNotFoundError):
                return _cached(partial(download, local_files_only=True))
        raise
    return download(ignore_patterns=OTHER_FORMATS if any(name.endswith(".safetensors") for name in files) else None)


def _cached(download: Callable[..., str]) -> str:
    """A model that lies complete in the cache, as we fill it; else LocalEntryNotFoundError."""
    path = download(ignore_patterns=OTHER_FORMATS)
    return path if any(Path(path).glob("*.safetensors")) else download()


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed later."""
    for link in _chain(error):
        if isinstance(link, HfHubHTTPError):
            status = link.response.status_code
            return status >= 500 or status in PATIENCE_STATUS
        if isinstance(link, json.JSONDecodeError):
            return True  # the page of a proxy that stands before the hub
        if isinstance(link, OfflineModeIsEnabled | ValueError) or _is_local(link):
            return False
    # RuntimeError is all that the hub's own transfer library says of a broken connection.
    return isinstance(_chain(error)[-1], httpx.HTTPError | OSError | RuntimeError)


def _is_local(error: BaseException) -> bool:
    """Whether this machine's disk is at fault."""
    return isinstance(error, OSError) and error.errno in (
        errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS,
    )  # fmt: skip


def retry_after(error: BaseException) -> float:
    """Seconds that the hub asked for; 0 if it did not."""
    for link in _chain(error):
        if isinstance(link, HfHubHTTPError):
            value = link.response.headers.get("Retry-After", "")
            return float(value) if re.fullmatch("[0-9]{1,9}", value) else 0.0
    return 0.0


def explain(error: BaseException, source: HubSource) -> FetchState:
    """The outcome, and a message that names repository, field and way out."""
    where = f"{source.field}: {source.name}"
    chain = _chain(error)
    status = next((link.response.status_code for link in chain if isinstance(link, HfHubHTTPError)), None)
    if any(isinstance(link, OfflineModeIsEnabled) for link in chain):
        text = f"{where} is not in the cache and HF_HUB_OFFLINE forbids to download it; unset it in runtime.env"
    elif any(isinstance(link, RevisionNotFoundError) for link in chain):
        text = f"{where} has no such revision; correct it, or leave it out for the main branch"
    elif status in (401, 403, 404):
        token = "the token in HF_TOKEN may not read it" if os.environ.get("HF_TOKEN") else "HF_TOKEN is not set"
        text = (
            f"{where} does not exist on the hub or is closed to you (HTTP {status}; {token}): check the name,"
            " and give a token from a Secret by runtime.env or runtime.envFrom"
        )
    elif is_transient(error):
        return FetchState(
            outcome=Outcome.TRANSIENT, message=f"{where} could not be downloaded from {ENDPOINT}: {_line(error)}"
        )
    elif any(_is_local(link) for link in chain):
        text = f"{where} could not be stored: {_line(error)}; give checkpoint.storage more room"
    elif any(isinstance(link, ValueError) for link in chain):
        text = f"{where}: {_line(error)}"
    else:
        return FetchState(outcome=Outcome.CRASH, message=f"{where}: {type(error).__name__}: {_line(error)}")
    return FetchState(outcome=Outcome.USER_ERROR, message=text)


def cache_directory(environment: Environment) -> Path | None:
    """Beside the checkpoints, where a restart finds the files, unless HF_HUB_CACHE names another place."""
    return None if os.environ.get("HF_HUB_CACHE") else environment.paths.hub(environment.node)


def _chain(error: BaseException) -> list[BaseException]:
    links = [error]
    while (cause := links[-1].__cause__) is not None and cause not in links:
        links.append(cause)
    return links


def _line(error: BaseException | None) -> str:
    text = " ".join(str(_chain(error)[-1]).split()) if error else ""
    return text[:300] or type(error).__name__


def main() -> int:
    """Write `<state>/sources.json`, or say in `<state>/fetch.json` why not and return 1."""
    configure_log()
    path = attempt_file(os.environ)
    attempt = Attempt.model_validate_json(path.read_text())
    environment = Environment.read(os.environ, attempt, path)
    files = environment.paths

    def say(state: FetchState) -> None:
        replace_text(files.fetch_file, state.model_dump_json(by_alias=True))

    def tell(message: str) -> None:
        log.info(message)
        say(FetchState(message=message))

    found: dict[str, str] = {}
    for source in hub_sources(attempt.spec):
        try:
            found[source.key] = fetch(source, cache_directory(environment), tell)
        except Exception as error:
            say(explain(error, source))
            return 1
    replace_text(files.sources_file, json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
