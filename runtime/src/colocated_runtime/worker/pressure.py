"""Out of memory on the device: the same work in smaller pieces."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from colocated_runtime.worker.packing import Piece


@dataclass
class TokenBudget:
    """How many tokens go through the model at once. What is learned under pressure stays for the steps after."""

    tokens: int
    report: Callable[[str], None]
    """Told of each event, in words, before memory is given back."""
    again: bool = True
    """Whether work that has failed can be done again: not where other ranks take part in it."""
    shrunk: bool = False
    lightened: bool = False

    def run(
        self, lengths: Sequence[int], cut: Callable[[Sequence[int], int], list[Piece]], work: Callable[[Piece], None],
        discard: Callable[[], None], lighten: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        """Do `work` for each piece that `cut` makes of rows of these lengths.

        After torch.OutOfMemoryError all that was done is discarded and done again in pieces of half the tokens: a
        backward pass that failed half-way has added some gradients already. Where no piece can be cut any more,
        `lighten` makes `work` take less memory, or returns False where it cannot; then the error is raised.
        """
        while True:
            pieces = cut(lengths, self.tokens)
            failure = _out_of_memory(work, pieces)
            if not failure:
                return
            if not self.again:
                raise torch.OutOfMemoryError(failure)
            discard()
            largest = max((sum(lengths[row] for row in piece) for piece in pieces if len(piece) > 1), default=0)
            if not largest:
                longest = max(lengths)
                if not lighten():
                    raise torch.OutOfMemoryError(f"a single row of at most {longest} tokens does not fit: {failure}")
                self.lightened = True
                self.report(f"a row of at most {longest} tokens did not fit; done again with every layer recomputed")
                _release()
                continue
            self.tokens = min(self.tokens, largest) // 2
            self.shrunk = True
            self.report(f"{largest} tokens at once did not fit; done again with {self.tokens} at most")
            _release()


def _out_of_memory(work: Callable[[Piece], None], pieces: list[Piece]) -> str:
    """The error's text, or nothing. The error itself is gone by then: its frames would hold the activations."""
    try:
        for piece in pieces:
            work(piece)
    except torch.OutOfMemoryError as error:
        return str(error) or type(error).__name__
    return ""


def _release() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
