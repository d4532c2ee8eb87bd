"""The files and the launcher process of a run on this machine."""

import fcntl
import glob
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pydantic.alias_generators import to_snake

from colocated_operator.cli.document import Document, Mistakes
from colocated_runtime.contract import names, uris
from colocated_runtime.contract.attempt import Attempt
from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.options import unknown
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.pod_template import items
from colocated_runtime.contract.refusals import clash
from colocated_runtime.contract.report import Report
from colocated_runtime.contract.rules import IMMUTABLE
from colocated_runtime.contract.sources import named_sources
from colocated_runtime.contract.values import port

HOST = "127.0.0.1"
UID = "local"
"""In the place of an object's uid: the same at every run, so that the next one resumes."""
GRACE_SECONDS = 600
GPU_FILES = ("/dev/nvidia[0-9]*", "/dev/dxg")
"""Of NVIDIA's driver, the second under Windows."""
LOCK, REWARDS = "lock", "rewards"


@dataclass(frozen=True)
class LocalRun:
    """One attempt, and the directory that holds all attempts of the job."""

    directory: Path
    attempt: Attempt
    lock: IO[str]
    """Held on the directory. The launcher inherits it: nobody else writes there, even if this process is killed."""

    @property
    def report_url(self) -> str:
        """Where the launcher answers."""
        return f"http://{HOST}:{self.attempt.report_port}/report"

    @property
    def logs(self) -> Path:
        """One file a rank."""
        return self.directory / self.attempt.directory / names.log_directory(self.attempt.attempt)

    @property
    def launcher_log(self) -> Path:
        """What a pod's log would show."""
        return self.directory / "launcher.log"

    def final_report(self) -> Report | None:
        """What the launcher left when it ended."""
        return _final_report(self.directory, self.attempt)

    def start(self) -> subprocess.Popen[bytes]:
        """Start the launcher, away from the terminal's signals. Raise Mistakes where its log cannot be written."""
        try:
            log = self.launcher_log.open("wb")
        except OSError as error:
            raise Mistakes(f"--storage: {self.launcher_log} cannot be written: {error.strerror}") from error
        with log:
            process = subprocess.Popen(
                [sys.executable, "-m", "colocated_runtime.launcher"],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[self.lock.fileno()],
                start_new_session=True,
            )
        with suppress(OSError):  # such as of a full disk: it is but for a message
            self.lock.truncate(0)
            self.lock.write(f"{process.pid} {socket.gethostname()}\n")
            self.lock.flush()
        return process

    def _environment(self) -> dict[str, str]:
        home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
        own = {one.name: one.value for one in self.attempt.spec.runtime.env if one.value is not None}
        return {"HF_HUB_CACHE": str(home / "hub")} | os.environ | own | {
            names.ENV_ATTEMPT_FILE: str(self.directory / names.ATTEMPT_KEY),
            names.ENV_STATE_DIR: str(self.directory / "state"),
            names.ENV_STORAGE_DIR: str(self.directory),
            names.ENV_REWARDS_DIR: str(self.directory / REWARDS),
            names.ENV_TERMINATION_LOG: str(self.directory / "termination.log"),
            names.ENV_REPORT_HOST: HOST,
            names.ENV_GRACE_SECONDS: str(GRACE_SECONDS),
            names.ENV_NODE_INDEX: "0",
        }  # fmt: skip


def finished(document: Document, directory: Path) -> tuple[Report, Path] | None:
    """Final report and logs of this very job, where it is complete in `directory` and its results still lie there."""
    last = _last(directory)
    if last is None or last.name != document.name:
        return None
    found = _complete(directory, last)
    same = document.spec.runtime.command == last.spec.runtime.command
    if found is None or not same or _fields(document, last) or _config_maps(document, directory):
        return None
    return found, directory / last.directory / names.log_directory(last.attempt)


def prepare(document: Document, directory: Path) -> LocalRun:
    """Write what the launcher reads; the attempt's number follows on those that lie there.

    Raise Mistakes: where the directory is somebody else's, or what lies there came from another spec.
    """
    directory = directory.absolute()
    attempt = Attempt(
        name=document.name,
        namespace=document.namespace,
        uid=UID,
        generation=1,
        attempt=1,
        hosts=[HOST],
        report_port=_free_port(),
        storage_uri=f"file://{directory}",
        spec=document.spec,
    )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _refuse_others(directory)
        lock = _locked(directory)
        _refuse_changes(document, directory)
        attempt = attempt.model_copy(update={"attempt": _attempts(directory / attempt.directory) + 1})
        (directory / names.ATTEMPT_KEY).write_text(attempt.model_dump_json(by_alias=True))
        _write_rewards(document, directory / REWARDS)
    except OSError as error:
        raise Mistakes(f"--storage: {directory} cannot be written: {error.strerror}") from error
    return LocalRun(directory, attempt, lock)


def unsuitable(document: Document) -> list[str]:
    """What in the job can be had in a cluster only."""
    spec = document.spec
    found = []
    if spec.nodes > 1:
        found.append(
            f"nodes: {spec.nodes}, but this machine is one node; set nodes: 1"
            " (without GPUs, processesPerNode gives as many ranks)"
        )
    if spec.backend == "cuda" and not spec.runtime.command and not any(map(glob.glob, GPU_FILES)):
        found.append(
            f"gpusPerNode: {spec.gpus_per_node}, but this machine has no NVIDIA GPU, or not its driver; set"
            " device.backend: cpu to train on the CPU, or run it where the GPUs are"
        )
    if spec.runtime.image and not spec.runtime.command:  # its TRL may have other options, but it is not used here
        found += unknown(spec.trainer, spec.algorithm)
    for source in named_sources(spec):
        found += _unsuitable_source(source.field, source.uri)
    for index, reward in enumerate(spec.rewards):
        if reward.config_map and reward.config_map not in document.config_maps:
            found.append(
                f"rewards[{index}].configMap: there is no ConfigMap {reward.config_map} in the file; put it there"
            )
    found += _unsuitable_volumes(spec.runtime.pod_template)
    used = {reward.config_map for reward in spec.rewards}
    clashing = clash({name: data for name, data in document.config_maps.items() if name in used})
    if clashing:
        found.append(clashing)
    found += [
        f"runtime.env[{index}]: {variable.name} comes from the cluster; set it in this shell"
        for index, variable in enumerate(spec.runtime.env)
        if variable.value_from and variable.name not in os.environ
    ]
    return found


def wrong_variable() -> str:
    """What is wrong with this shell's variables; empty where nothing is."""
    try:
        port(os.environ.get(names.ENV_MASTER_PORT, str(names.RENDEZVOUS_PORT)))
    except ValueError as error:
        return f"{names.ENV_MASTER_PORT}, a variable of this shell: {error}, or unset it"
    return ""


def missing_runtime(spec: JobSpec) -> str:
    """How to get the packages that this environment lacks; empty where it has all."""
    needed = ["torch"] if spec.runtime.command else ["torch", "trl", "vllm"]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if not missing:
        return ""
    extra = "runtime-cpu" if spec.backend == "cpu" else "runtime"
    return f"{sys.prefix} has no {', '.join(missing)}: uv pip install '.[{extra}]' in the project's directory"


def _unsuitable_source(field: str, uri: str) -> list[str]:
    try:
        source = uris.parse(uri)
    except ValueError as error:
        return [f"{field}: {error}"]
    if source.scheme == "pvc":
        return [f"{field}: {uri} is a claim in a cluster; give a directory of this machine as file:///PATH"]
    if source.scheme == "file" and not os.path.exists(source.path):
        return [
            f"{field}: {uri} is not on this machine (in a pod it is a path inside the image, or where"
            " runtime.podTemplate mounts something);"
            " give one that is, or put a copy there"
        ]
    return []


def _unsuitable_volumes(template: Mapping[str, Any]) -> list[str]:
    """ConfigMaps that the job's container finds as files in a pod, and not here."""
    mounts = [
        mount
        for _, container in items(template, "containers")
        if container.get("name") == names.CONTAINER
        for mount in container.get("volumeMounts") or []
        if mount and not os.path.exists(str(mount.get("mountPath")))
    ]
    return [
        f"{field}.configMap: {config_map.get('name')} is mounted at {mount.get('mountPath')} in pods only; put its"
        " files there on this machine, or leave the volume out of this run"
        for field, volume in items(template, "volumes")
        for mount in mounts
        if isinstance(config_map := volume.get("configMap"), Mapping) and volume.get("name") == mount.get("name")
    ]


def _refuse_others(directory: Path) -> None:
    """Some names in it are written over and cleared."""
    others = [path for path in directory.iterdir() if path.name != LOCK]
    if others and not (directory / names.ATTEMPT_KEY).exists():
        raise Mistakes(f"--storage: {directory} holds other files; give one that is empty, new, or an earlier run's")


def _refuse_changes(document: Document, directory: Path) -> None:
    """Its checkpoints, and the step that it counts, are of the spec that made them, as in a cluster."""
    last = _last(directory)
    if last is None or last.name != document.name or not any((directory / last.directory).glob("checkpoints/*")):
        return
    changes = _fields(document, last)
    if _complete(directory, last):  # before its end a mended reward goes on, as in a cluster
        changes += _config_maps(document, directory)
    if changes:
        raise Mistakes(
            f"--storage: {directory} has checkpoints of this job with another {', '.join(changes)}; to start anew,"
            " remove it, or give another --storage"
        )


def _fields(document: Document, last: Attempt) -> list[str]:
    """In which the job is not what its last attempt was given. A command of the user's decides for itself."""
    new, old = document.spec, last.spec
    return [f"spec.{field}" for field in IMMUTABLE if getattr(new, to_snake(field)) != getattr(old, to_snake(field))]


def _config_maps(document: Document, directory: Path) -> list[str]:
    """Of its rewards, that are not what the last attempt was given."""
    used = sorted({reward.config_map for reward in document.spec.rewards if reward.config_map in document.config_maps})
    new = {name: {key: text.encode() for key, text in document.config_maps[name].items()} for name in used}
    return [f"ConfigMap {name}" for name in used if new[name] != _files(directory / REWARDS / name)]


def _complete(directory: Path, last: Attempt) -> Report | None:
    """The final report of a job that is complete, while its results are there, also where they were moved to."""
    found = _final_report(directory, last)
    if found is None or found.outcome is not Outcome.COMPLETE:
        return None
    found = _brought_here(found, last, directory)
    results = [found.model_uri, *(checkpoint.uri for checkpoint in found.checkpoints[-1:])]
    return found if all(_is_there(uri) for uri in results if uri) else None


def _final_report(directory: Path, attempt: Attempt) -> Report | None:
    """What the launcher of `attempt` left when it ended; None where that is no report."""
    path = directory / attempt.directory / names.final_report(attempt.attempt, node=0)
    try:
        return Report.model_validate_json(path.read_bytes())
    except (OSError, ValueError):
        return None


def _brought_here(report: Report, last: Attempt, directory: Path) -> Report:
    """With the paths of `directory`: it may be a copy of the one that the attempt wrote to."""
    old, new = f"{last.storage_uri.rstrip('/')}/", f"file://{directory.absolute()}/"

    def here(uri: str) -> str:
        return new + uri.removeprefix(old) if uri.startswith(old) else uri

    checkpoints = [checkpoint.model_copy(update={"uri": here(checkpoint.uri)}) for checkpoint in report.checkpoints]
    return report.model_copy(update={"model_uri": here(report.model_uri), "checkpoints": checkpoints})


def _is_there(uri: str) -> bool:
    """A command of the user's may report any: of a hub's its word is taken, and what is no URI is not there."""
    try:
        source = uris.parse(uri)
        return source.scheme == "hf" or (source.scheme == "file" and Path(source.path).exists())
    except (OSError, ValueError):
        return False


def _files(directory: Path) -> dict[str, bytes | None]:
    """Of a ConfigMap, as the last attempt had them; None for one that cannot be read. Python adds directories."""
    return {path.name: _content(path) for path in directory.glob("*") if not os.path.isdir(path)}


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _last(directory: Path) -> Attempt | None:
    try:
        return Attempt.model_validate_json((directory / names.ATTEMPT_KEY).read_bytes())
    except (OSError, ValueError):
        return None


def _write_rewards(document: Document, directory: Path) -> None:
    """Each ConfigMap as a directory of files, as pods have them mounted."""
    shutil.rmtree(directory, ignore_errors=True)
    for name, data in document.config_maps.items():
        (directory / name).mkdir(parents=True, exist_ok=True)
        for key, text in data.items():
            (directory / name / key).write_bytes(text.encode())


def _attempts(job_directory: Path) -> int:
    """The highest number of an attempt that left a trace."""
    traces = [*job_directory.glob("logs/attempt-*"), *job_directory.glob("reports/attempt-*")]
    numbers = [re.match(r"attempt-(\d+)", trace.name) for trace in traces]
    return max((int(number[1]) for number in numbers if number), default=0)


def _locked(directory: Path) -> IO[str]:
    lock = (directory / LOCK).open("a+", errors="replace")  # it may be another's, and hold its launcher's number
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        launcher = re.match(r"(\d+) (\S+)\n", lock.read(1000))
        lock.close()
        how = f"stop its launcher (kill {launcher[1]} on {launcher[2]}; it saves first), " if launcher else ""
        raise Mistakes(
            f"--storage: another run uses {directory}; wait for it, {how}or give another directory"
        ) from None
    lock.truncate(0)
    return lock


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((HOST, 0))
        return int(free.getsockname()[1])
