"""The training step that both trainers share: TRL's mathematics, without its padding, its micro-batches and, where it
is superfluous, its pass for the old log-probabilities.

TRL calls `compute_loss` once a micro-batch. Here all but the last only wait: with the last one the whole window goes
through the model, in pieces of so many tokens. Nothing in a piece talks to other ranks, so a rank that runs out of
memory can start its window again in smaller pieces; the ranks agree when all are done.
"""

import logging
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812

from colocated_runtime.planner.settings import StepSettings
from colocated_runtime.worker import attention, ranks
from colocated_runtime.worker.packing import Piece, cut_further, packed_pieces, padded_pieces, score_packed
from colocated_runtime.worker.pressure import TokenBudget
from colocated_runtime.worker.recompute import set_recompute
from colocated_runtime.worker.sharding import SHARDED
from colocated_runtime.worker.throughput import Meter
from colocated_runtime.worker.window import MicroBatch, Part, Window

log = logging.getLogger(__name__)

WHOLE = ("NO", "MULTI_CPU", "MULTI_GPU")
"""accelerate's kinds of parallelism under which each rank holds all parameters and gradients."""


class Alone:
    """accelerate's Accelerator for a loss that is computed for its derivative alone: it needs no other rank."""

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._accelerator, name)

    def gather(self, value: Any) -> Any:
        """The value itself."""
        return value

    def reduce(self, value: Any, reduction: str = "sum") -> Any:
        """The value itself."""
        return value


class Step:
    """Mixed in before TRL's class, which it calls for every loss and, where it cannot be exact, for all of the step."""

    if TYPE_CHECKING:  # what TRL's class brings
        accelerator: Any
        _metrics: Any

        def __getattr__(self, name: str) -> Any: ...

    def set_up_step(self, settings: StepSettings, budget: TokenBudget, meter: Meter) -> None:
        """Choose how steps run; say so, and why, in the log. `meter` is told what was trained on."""
        self._settings = settings
        self._budget = budget
        self._meter = meter
        self._window: list[MicroBatch] = []
        self._sharded = self.accelerator.distributed_type == SHARDED
        self._given: tuple[torch.Tensor, torch.Tensor] | None = None
        inexact = self._inexact() if settings.own_step else "memory.policy is Manual"
        unpacked = attention.why_not(self.model)
        kept = inexact or self._old_log_probs_needed()
        self._own, self._packed, self._skips_old = not inexact, not (inexact or unpacked), not kept
        if self._packed:
            for model in filter(None, (self.model, self.ref_model)):
                attention.pack(model)
        log.info(
            "training step: %s; sequences %s; old log-probabilities %s",
            f"TRL's own, since {inexact}" if inexact else f"pieces of {budget.tokens} tokens",
            f"padded, since {inexact or unpacked}" if inexact or unpacked else "packed",
            f"in a pass of their own, since {kept}" if kept else "from the step itself",
        )

    def _inexact(self) -> str:
        """Why the step in pieces would not be TRL's; empty where it is."""
        args = self.args
        if self.accelerator.distributed_type not in (*WHOLE, SHARDED):
            return f"{self.accelerator.distributed_type} spreads the model over the ranks"
        if getattr(self, "top_entropy_quantile", 1.0) < 1.0:
            return "top_entropy_quantile looks at all tokens of a micro-batch and of all ranks"
        if getattr(self, "use_adaptive_entropy", False):
            return "the adaptive entropy bonus changes from call to call of the loss"
        if self.aux_loss_enabled:
            return "the router's auxiliary loss is no sum over sequences"
        if any(kind in str(args.optim) for kind in ("lomo", "layerwise")):
            return f"optim {args.optim} steps inside the backward pass"
        return ""

    def _old_log_probs_needed(self) -> str:
        """Why the old policy's log-probabilities are not those of the step itself; empty where they are."""
        every = self.args.steps_per_generation * self.num_iterations
        if self.args.gradient_accumulation_steps % every:
            return "a rollout is trained on in more than one optimizer step"
        dropout = any(isinstance(module, torch.nn.Dropout) and module.p > 0 for module in self.model.modules())
        if dropout or self.model.config.get_text_config().to_dict().get("attention_dropout"):
            return "dropout is on, and two passes drop different parts"
        return ""

    # What TRL calls

    def compute_loss(
        self, model: Any, inputs: MicroBatch, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Wait for the optimizer step's last micro-batch, then run them all. Backward on the result does nothing."""
        if not (self._own and self.model.training):
            loss = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)  # type: ignore[misc]
            if self.model.training:
                tokens = inputs["prompt_mask"].sum(dim=1) + inputs["completion_mask"].sum(dim=1)
                self._meter.trained(tokens.tolist())
            return loss
        self._window.append(inputs)
        if len(self._window) < self.current_gradient_accumulation_steps:
            return torch.zeros((), device=self.accelerator.device, requires_grad=True)
        micro_batches, self._window = self._window, []
        return self._run(Window(micro_batches)).requires_grad_()

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int, *args: Any,
        **kwargs: Any,
    ) -> Any:  # fmt: skip
        """What the step has found already; else TRL's scoring, in pieces."""
        if self._given is not None:
            return (*self._given, None)
        if not self._own or torch.is_grad_enabled():
            return super()._get_per_token_logps_and_entropies(  # type: ignore[misc]
                model, input_ids, attention_mask, logits_to_keep, *args, **kwargs
            )
        shape, entropy = (len(input_ids), logits_to_keep), bool(kwargs.get("compute_entropy"))
        log_probs, entropies = (torch.zeros(shape, device=input_ids.device) for _ in range(2))

        def score(piece: Piece) -> None:
            found = self._score(model, input_ids[piece], attention_mask[piece], logits_to_keep, entropy=entropy)
            log_probs[piece] = found[0]
            if entropy:
                entropies[piece] = found[1]

        self._budget.run(attention_mask.sum(dim=1).tolist(), self._cut, score, lambda: None)
        return log_probs, entropies if entropy else None, None

    # The window

    def _run(self, window: Window) -> torch.Tensor:
        """Gradients of the whole window, and its loss as TRL's `compute_loss` would have summed it."""
        if self._settings.recompute is not None:
            set_recompute(self.model, self._settings.recompute, self.args.gradient_checkpointing_kwargs)
        # transformers divides by the number of micro-batches whatever is no such mean yet.
        divisor = 1 if self.loss_is_scaled_for_ga else len(window.parts)

        def work(piece: Piece) -> None:
            ids, mask = window.ids[piece], window.mask[piece]
            log_probs, entropies = self._score(self.model, ids, mask, window.completion, entropy=True)
            self.accelerator.backward(window.fill(piece, log_probs, entropies, self._loss_aside) / divisor)

        try:
            self._budget.run(window.lengths, self._cut, work, self.model.zero_grad, self.recompute_all)
            failure = None
        except torch.OutOfMemoryError as error:
            if self._sharded:  # the others are in the pass that has failed here, and cannot answer
                raise
            failure = str(error)
        if not ranks.all_succeeded(failure is None, self.accelerator.device):
            raise torch.OutOfMemoryError(failure or "another rank has no memory for a single row")
        self._meter.trained(window.lengths)
        if not self._sharded:  # else the backward passes have done so
            ranks.average_gradients(self.model.parameters())
        if self._skips_old:
            for rollout in self._rollouts(window):
                self._log_sampling(window, rollout)
        return window.loss(self._loss)

    def recompute_all(self) -> bool:
        """Have every layer computed again in the backward pass from now on; False where it is already."""
        chosen = self._settings.recompute or ("full" if self.args.gradient_checkpointing else "none")
        if chosen == "full":
            return False
        self._settings = replace(self._settings, recompute="full")
        set_recompute(self.model, "full", self.args.gradient_checkpointing_kwargs)
        return True

    def _rollouts(self, window: Window) -> list[list[Part]]:
        """The window's micro-batches by the rollout that they come from, each of them once."""
        size = self.args.steps_per_generation
        return [window.parts[first : first + size] for first in range(0, len(window.parts), size * self.num_iterations)]

    def _cut(self, lengths: Any, tokens: int) -> list[Piece]:
        """As many pieces on every rank where the ranks share the model out: each takes part in the others' passes."""
        pieces = (packed_pieces if self._packed else padded_pieces)(lengths, tokens)
        return cut_further(pieces, ranks.largest(len(pieces), self.accelerator.device)) if self._sharded else pieces

    def _score(self, model: Any, ids: torch.Tensor, mask: torch.Tensor, completion: int, *, entropy: bool) -> Any:
        """Log-probabilities and entropies [rows, completion] of the rows of one piece."""
        if self._packed:
            return score_packed(model, ids, mask, completion, autocast=self.accelerator.autocast())
        used = mask.any(dim=0).nonzero()
        prompt = mask.shape[1] - completion
        first, last = int(used[0]), max(int(used[-1]), prompt) + 1  # the columns that are not all padding
        log_probs, entropies, _ = super()._get_per_token_logps_and_entropies(  # type: ignore[misc]
            model, ids[:, first:last], mask[:, first:last], last - prompt, compute_entropy=entropy
        )
        padding = (0, mask.shape[1] - last)
        return F.pad(log_probs, padding), F.pad(entropies, padding) if entropy else None

    def _loss(self, inputs: MicroBatch, log_probs: torch.Tensor, entropies: torch.Tensor) -> torch.Tensor:
        """TRL's loss, metrics and all."""
        if self._skips_old:
            inputs = inputs | self._on_policy(inputs, log_probs.detach())
        self._given = log_probs, entropies
        try:
            return super()._compute_loss(self.model, inputs)  # type: ignore[misc]
        finally:
            self._given = None

    def _loss_aside(self, inputs: MicroBatch, log_probs: torch.Tensor, entropies: torch.Tensor) -> torch.Tensor:
        """The same for its derivative alone: nothing is logged, no rank is waited for."""
        with self._aside():
            return self._loss(inputs, log_probs, entropies)

    @contextmanager
    def _aside(self) -> Iterator[None]:
        accelerator, metrics = self.accelerator, self._metrics
        self.accelerator, self._metrics = Alone(accelerator), {"train": defaultdict(list), "eval": defaultdict(list)}
        try:
            yield
        finally:
            self.accelerator, self._metrics = accelerator, metrics

    # What the algorithms do differently

    def _on_policy(self, inputs: MicroBatch, log_probs: torch.Tensor) -> MicroBatch:
        """What the skipped pass would have put into the micro-batch."""
        raise NotImplementedError

    def _log_sampling(self, window: Window, rollout: list[Part]) -> None:
        """The metrics of one rollout that TRL takes from the skipped pass. A collective: every rank must call it."""
        raise NotImplementedError
