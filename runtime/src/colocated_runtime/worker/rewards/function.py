"""A reward written by the user: `module:function`, from a mounted ConfigMap or from the image."""

import difflib
import functools
import importlib
import inspect
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from colocated_runtime.worker.errors import RewardError, UserError

LONGEST = 1000
"""Characters of what a reward says."""
NAMED = 20
"""Functions of a module that are listed."""


def load(name: str, directory: Path | None, field: str) -> Callable[..., Any]:
    """Import `module:function`, `directory` first. Raise UserError with the import's own reason."""
    module_name, _, attribute = name.partition(":")
    if directory is not None:
        if not directory.is_dir():
            raise UserError(f"{field}: ConfigMap {directory.name!r} is not mounted: {directory} does not exist")
        sys.path.insert(0, str(directory))
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        held = f"; the ConfigMap holds {', '.join(_files(directory))}" if directory else ""
        raise UserError(f"{field}: cannot import {module_name!r}: {type(error).__name__}: {error}{held}") from error
    own = directory / f"{module_name.partition('.')[0]}.py" if directory else None
    origin = getattr(module, "__file__", None)
    if own and own.exists() and origin != str(own):
        raise UserError(
            f"{field}: {own.name} of ConfigMap {own.parent.name!r} is hidden by {origin or 'a built-in module'}; rename"
            " the file"
        )
    function = getattr(module, attribute, None)
    if not callable(function):
        raise UserError(f"{field}: {_no_function(module, attribute)}")
    return _guarded(function, f"{field}: {name}")


def _no_function(module: ModuleType, wanted: str) -> str:
    name = module.__name__
    public = sorted(key for key, value in vars(module).items() if not key.startswith("_") and _is_own(value, name))
    if wanted in vars(module):
        said = f"{wanted!r} of {name!r} is no function but {type(vars(module)[wanted]).__name__}"
    else:
        said = f"{name!r} has no function {wanted!r}"
    if not public:
        return f"{said}; {name!r} has no public function at all"
    near = difflib.get_close_matches(wanted, public, n=1)
    hint = f"did you mean {near[0]}? It" if near else "it"
    return f"{said}; {hint} has {', '.join(public[:NAMED])}{', …' if public[NAMED:] else ''}"


def _is_own(value: Any, module: str) -> bool:
    """Whether it is a function of the module's package, not one that was imported for use inside."""
    package = module.partition(".")[0]
    home = str(getattr(value, "__module__", "")).partition(".")[0]
    return inspect.isroutine(value) and home == package


def _guarded(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """`function`, its failures told apart from ours and under `name`, the reward's field and function."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def guarded_async(*args: Any, **kwargs: Any) -> Any:
            try:
                returned = await function(*args, **kwargs)
            except (Exception, SystemExit) as error:
                raise _raised(name, error) from error
            return _checked(returned, kwargs.get("completions"), name)

        return guarded_async

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            returned = function(*args, **kwargs)
        except (Exception, SystemExit) as error:
            raise _raised(name, error) from error
        return _checked(returned, kwargs.get("completions"), name)

    return guarded


def _raised(name: str, error: BaseException) -> RewardError:
    return RewardError(f"{name} raised {type(error).__name__}: {str(error)[:LONGEST]}")


def _checked(returned: Any, completions: Sequence[Any] | None, name: str) -> list[Any]:
    """The rewards, if each completion has a finite number, or None where the reward does not apply to it.

    TRL takes NaN for "does not apply": a job whose rewards are all NaN would train nothing and end Complete.
    """
    if isinstance(returned, str) or not isinstance(returned, Iterable):
        raise RewardError(f"{name} returned {type(returned).__name__}; return a list, a number a completion")
    try:
        values = list(returned)
    except (Exception, SystemExit) as error:  # of a generator
        raise _raised(name, error) from error
    if completions is not None and len(values) != len(completions):
        raise RewardError(f"{name} returned {len(values)} values for {len(completions)} completions; one each")
    for index, value in enumerate(values):
        if value is None:
            continue
        try:
            finite = not isinstance(value, str) and math.isfinite(value)
        except (TypeError, ValueError, OverflowError):
            finite = False
        if not finite:
            raise RewardError(
                f"{name} returned {_shown(value)} for completion {index}; return a finite number, or None where the"
                " reward does not apply"
            )
    return values


def _shown(value: Any) -> str:
    try:
        return repr(value)[:LONGEST]
    except Exception:  # Python refuses to write out very large numbers; and whatever a user's class does
        return f"a value of type {type(value).__name__}"


def _files(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir() if not entry.name.startswith("."))
