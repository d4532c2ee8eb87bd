"""What can go wrong in a rank, and which outcome it is."""

import traceback
from pathlib import Path

from colocated_runtime import lost_peer
from colocated_runtime.contract.outcome import DEVICE_FULL, Outcome
from colocated_runtime.contract.phase import Phase
from colocated_runtime.files import volume_failure

NO_ROOM_FOR_ENGINE = (
    "No available memory for the cache blocks",
    "KV cache is needed, which is larger than the available",
    "is less than desired GPU memory utilization",
)
"""ValueErrors of vLLM where its share of the device does not suffice."""
NOT_ALONE = "Error in memory profiling"
"""vLLM's words where another process gave device memory back while the engine measured it."""
LINES, LINE = 200, 4000
"""Of a traceback that is shown, and characters of each."""
PHASE = "colocated_phase"
"""Attribute of an exception."""
NETWORK = (
    "HfHubHTTPError",
    "ConnectError",
    "ConnectionError",
    "ReadTimeout",
    "ConnectTimeout",
    "DistNetworkError",
    "gaierror",
)
"""Names of exception classes of the hub's client, of HTTP clients, DNS and the rendezvous."""
MISTAKES = (
    ValueError,
    TypeError,
    LookupError,
    ImportError,
    AttributeError,
    NotImplementedError,
    FileNotFoundError,
)
"""What a wrong setting, dataset or reward raises; before the first step is done nothing else has been proven."""
STALE = "the engine does not take over the trained weights; the checkpoints hold the trainer's own"
"""What a WeightsStale comes down to."""


class UserError(Exception):
    """A mistake in the spec, the dataset or the user's code. The message names field, value and way out."""


class RewardError(Exception):
    """The user's reward function raised, or returned something that is no list of floats."""


class WeightsStale(Exception):
    """The engine samples from other weights than the trainer's, also after one more sync."""


class DevicesMissing(Exception):
    """The pod does not see the GPUs that it asked for; another node, or this one later, may show them."""


class Stopped(Exception):
    """The launcher has asked to save and leave, and all ranks have broken off the rollout that they were in."""


class Fenced(Exception):
    """A newer attempt of the same job owns the checkpoint directory."""


TOLD = (UserError, DevicesMissing)
"""What is told in words: a traceback would add nothing."""


def classify(error: BaseException, steps_done: int) -> Outcome:
    """The outcome of a rank that `error` ended after `steps_done` steps, those of earlier attempts included."""
    chain = list(_chain(error))
    if any(isinstance(link, UserError) for link in chain):
        return Outcome.USER_ERROR
    if any(isinstance(link, WeightsStale) for link in chain):
        return Outcome.WEIGHTS_STALE
    if any(_device_is_full(link) for link in chain):
        return Outcome.DEVICE_OUT_OF_MEMORY
    if isinstance(error, DevicesMissing):
        return Outcome.TRANSIENT
    if any(NOT_ALONE in str(link) or cls.__name__ in NETWORK for link in chain for cls in type(link).__mro__):
        return Outcome.TRANSIENT
    if steps_done == 0 and isinstance(error, (RewardError, *MISTAKES)):
        return Outcome.USER_ERROR
    return Outcome.CRASH


def storage(error: BaseException, volume: Path) -> str:
    """What is wrong with the checkpoint volume, by `error` or its causes; empty if it is something else."""
    return next((words for link in _chain(error) if (words := volume_failure(link, volume))), "")


def _chain(error: BaseException) -> "list[BaseException]":
    links = [error]
    while (cause := links[-1].__cause__) is not None and cause not in links:
        links.append(cause)
    return links


def _device_is_full(error: BaseException) -> bool:
    if type(error).__name__ == "OutOfMemoryError":
        return True
    texts = {RuntimeError: DEVICE_FULL, ValueError: NO_ROOM_FOR_ENGINE}
    said = str(error).lower()
    return any(isinstance(error, kind) and any(text.lower() in said for text in words) for kind, words in texts.items())


def words(error: BaseException, outcome: Outcome) -> str:
    """What the report says of `error`: of a full device also the phase in which it was full."""
    if isinstance(error, SystemExit):
        return f"a library called sys.exit({error.code!r:.{LINE}})"
    said = str(error)[:LINE] or type(error).__name__
    if outcome is not Outcome.DEVICE_OUT_OF_MEMORY:
        return said
    return f"the device's memory ran out in phase {phase_of(error) or Phase.START}: {said}"


def told(error: BaseException) -> str:
    """What the rank's log says of it: one line for what has a cause in words, else the traceback."""
    line = f"{type(error).__name__}: {str(error)[:LINE]}"
    if isinstance(error, TOLD):
        return line
    if isinstance(error, RewardError):
        return f"{line}{_place(error.__cause__)}"
    if any(lost_peer.told_in(str(link)) for link in _chain(error)):
        return f"another rank is lost, and the cause is in its log: {line.partition(chr(10))[0]}"
    return trace(error)


def _place(error: BaseException | None) -> str:
    """The line of the user's code that raised `error`."""
    frames = traceback.extract_tb(error.__traceback__) if error else []
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def trace(error: BaseException) -> str:
    """The traceback, whatever the length of what a user's code says."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    if len(lines) > LINES:
        lines = [*lines[: LINES // 2], "[...]", *lines[-LINES // 2 :]]
    return "\n".join(line[:LINE] for line in lines)


def trace_of_cause(error: BaseException) -> str:
    """What a report shows of it: nothing for a mistake told in words, of a reward only the user's own part."""
    if isinstance(error, TOLD):
        return ""
    if isinstance(error, RewardError):
        return trace(error.__cause__) if error.__cause__ else ""
    return trace(error)


def mark(error: BaseException, phase: Phase) -> None:
    """Note on `error` that it was raised in `phase`; the first, innermost, word counts."""
    vars(error).setdefault(PHASE, phase)


def phase_of(error: BaseException) -> Phase | None:
    """The innermost phase through which `error`, or its cause, went."""
    found = [vars(link)[PHASE] for link in _chain(error) if PHASE in vars(link)]
    return found[-1] if found else None
