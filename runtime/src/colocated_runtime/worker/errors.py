"""What can go wrong in a rank, and which outcome it is."""

from colocated_runtime.contract.outcome import Outcome

OUT_OF_MEMORY = (
    "out of memory",
    "cumem_allocator",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "No available memory for the cache",
)
"""Texts of a device that is full: torch's, the driver's, and those of vLLM's sleep-mode allocator."""
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


class UserError(Exception):
    """A mistake in the spec, the dataset or the user's code. The message names field, value and way out."""


class RewardError(Exception):
    """The user's reward function raised, or returned something that is no list of floats."""


class WeightsStale(Exception):
    """The engine samples from other weights than the trainer's, also after one more sync."""


class Fenced(Exception):
    """A newer attempt of the same job owns the checkpoint directory."""


def classify(error: BaseException, steps_done: int) -> Outcome:
    """The outcome of a rank that `error` ended after `steps_done` steps, those of earlier attempts included."""
    chain = list(_chain(error))
    if any(isinstance(link, UserError) for link in chain):
        return Outcome.USER_ERROR
    if any(isinstance(link, WeightsStale) for link in chain):
        return Outcome.WEIGHTS_STALE
    if any(type(link).__name__ == "OutOfMemoryError" or _mentions(link, OUT_OF_MEMORY) for link in chain):
        return Outcome.DEVICE_OUT_OF_MEMORY
    if any(cls.__name__ in NETWORK for link in chain for cls in type(link).__mro__):
        return Outcome.TRANSIENT
    if steps_done == 0 and isinstance(error, (RewardError, *MISTAKES)):
        return Outcome.USER_ERROR
    return Outcome.CRASH


def _chain(error: BaseException) -> "list[BaseException]":
    links = [error]
    while (cause := links[-1].__cause__) is not None and cause not in links:
        links.append(cause)
    return links


def _mentions(error: BaseException, texts: tuple[str, ...]) -> bool:
    return isinstance(error, RuntimeError) and any(text.lower() in str(error).lower() for text in texts)
