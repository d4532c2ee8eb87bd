"""TRL's GRPO and RLOO trainers with our engine, training step, phases and checkpoints; their mathematics is TRL's."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch.distributed.checkpoint import CheckpointException
from transformers import TrainerState
from trl import GRPOTrainer, RLOOTrainer
from trl.trainer.utils import split_tensor_dict

from colocated_runtime.contract.report import Phase
from colocated_runtime.files import free_bytes
from colocated_runtime.planner.settings import StepSettings
from colocated_runtime.worker import completions, rng, sharding
from colocated_runtime.worker.callbacks import DIFFERENCE
from colocated_runtime.worker.checkpoints import CheckpointStore
from colocated_runtime.worker.engine import Engine, Sampling
from colocated_runtime.worker.guest import Guest
from colocated_runtime.worker.importance import differences, importance_ratio, joined
from colocated_runtime.worker.offload import OptimizerStates, Update
from colocated_runtime.worker.phases import Phases
from colocated_runtime.worker.pressure import TokenBudget
from colocated_runtime.worker.ranks import all_succeeded, barrier, from_first
from colocated_runtime.worker.step import WHOLE, Step
from colocated_runtime.worker.throughput import Meter
from colocated_runtime.worker.window import MicroBatch, Part, Window, completion_mask

SAMPLED = "sampling_per_token_logps"
"""TRL's name for the engine's log-probabilities in a micro-batch, [rows, tokens]; GRPO only."""
SAMPLED_SUMS = "sampled_logps"
"""Ours, for RLOO: their sums, [rows]."""

ADAMW, ADAMW_STATES = ("adamw_torch", "adamw_torch_fused"), 2
"""States of each trained number, in its own type; other optimizers have fewer or smaller ones."""
TORCH_CANNOT_WRITE = ("PytorchStreamWriter", "unexpected pos", "Parent directory", "open file failed")
"""Words of the RuntimeErrors that torch.save raises where a volume is full, read-only or gone."""

# Where there are several ranks accelerate numbers the CPU, too, and torch.load knows no "cpu:0".
torch.serialization.register_package(
    0, lambda storage: None, lambda storage, device: storage if device.startswith("cpu:") else None
)

FULL = 1 << 20
"""Bytes: a volume that has less left could not be written."""

Saver = Callable[[int, OSError | None, float], None]
"""Called on every rank after a save: the step, the error of a rank that could not write, and how many seconds it took.
"""


@dataclass(frozen=True)
class Collaborators:
    """What the trainers need beside TRL's own arguments."""

    phases: Phases
    store: CheckpointStore
    make_engine: Callable[[Any, Sampling], Engine]
    step: StepSettings
    meter: Meter
    on_saved: Saver


class Colocated(Step):
    """The overrides that both trainers share. Mixed in before TRL's class."""

    _logs: dict[str, Any]

    def __init__(self, *, collaborators: Collaborators, **kwargs: Any) -> None:
        self._phases = collaborators.phases
        self._store = collaborators.store
        self._on_saved = collaborators.on_saved
        self._saving = False
        self._sampler: Any = None
        self._boundary: tuple[rng.RandomState, dict[str, Any]] | None = None
        self._saved_step: int | None = None
        args = kwargs["args"]
        # TRL offers no way to pass an engine in: without vLLM it builds none, and the rollout looks at the flag anew.
        args.use_vllm = False
        super().__init__(**kwargs)
        args.use_vllm = self.use_vllm = True
        self._last_loaded_step = -1
        if self.is_fsdp_enabled:
            sharding.share_out(self.accelerator, self.model)
        self.optimizer_states = self._optimizer_states(always=collaborators.step.offload)
        self.add_callback(Update(self.optimizer_states))
        # Before the engine is built, which wants the room.
        self._reference = self._guest() if self._reference_moves() else None
        self.vllm_generation = collaborators.make_engine(self.model, self._sampling())
        self.vllm_generation.when_short_of_memory(self.optimizer_states.spare)
        budget = TokenBudget(collaborators.step.tokens, self._phases.pressure, again=not self.is_fsdp_enabled)
        self.set_up_step(collaborators.step, budget, collaborators.meter)

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()  # type: ignore[misc]
        sharding.also_on_cpus(self)

    def _optimizer_states(self, *, always: bool) -> OptimizerStates:
        states = OptimizerStates(lambda: self.optimizer, self._phases.handover, always=always)
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        if always and self.args.optim in ADAMW:
            states.expect(trained[0].dtype, ADAMW_STATES * sum(parameter.nbytes for parameter in trained))
        return states

    def _sampling(self) -> Sampling:
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k or 0,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            max_completion_length=self.max_completion_length,
            generation_kwargs=dict(self.args.generation_kwargs or {}),
        )

    def _prepare_for_training(self, *args: Any, **kwargs: Any) -> Any:
        """Leave DistributedDataParallel again where the step averages the gradients itself: it holds a copy of them.

        It has given all ranks the first one's weights, as it should.
        """
        model, loader = super()._prepare_for_training(*args, **kwargs)  # type: ignore[misc]
        if self._own and not self._sharded:
            model = self.model_wrapped = self.model
        return model, loader

    def log(self, *args: Any, **kwargs: Any) -> None:
        """TRL's, which writes all completions in full where log_completions is set."""
        whole = self._logs
        if self.log_completions:
            self._logs = completions.bounded(whole, self.num_completions_to_print)
        super().log(*args, **kwargs)  # type: ignore[misc]
        self._logs = whole

    def _guest(self) -> Guest:
        return Guest(self.ref_model, self.accelerator.device, "reference model", self._phases.handover)

    def _reference_moves(self) -> bool:
        """Not where ranks share its parameters out."""
        return self.ref_model is not None and self.accelerator.distributed_type in WHOLE

    def _get_per_token_logps_and_entropies(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        """The reference model comes to the device for its pass."""
        visit = self._reference.here() if self._reference and model is self.ref_model else nullcontext()
        with visit:
            return super()._get_per_token_logps_and_entropies(model, *args, **kwargs)

    # Phases

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        with self._phases(Phase.TRAIN):
            return super().training_step(*args, **kwargs)  # type: ignore[misc]

    def _generate_and_score_completions(self, *args: Any, **kwargs: Any) -> Any:
        with self._phases(Phase.SCORE):
            return super()._generate_and_score_completions(*args, **kwargs)  # type: ignore[misc]

    def _generate_single_turn(self, prompt_ids: list[list[int]], *args: Any, **kwargs: Any) -> Any:
        with self._phases(Phase.ROLLOUT):
            generated = super()._generate_single_turn(prompt_ids, *args, **kwargs)  # type: ignore[misc]
        completion_ids = generated[0] if isinstance(generated, tuple) else generated  # RLOO takes no log-probabilities
        self._meter.generated([len(ids) for ids in prompt_ids], [len(ids) for ids in completion_ids])
        return generated

    def sync_engine(self) -> None:
        """Give the engine the present weights, unless it has them."""
        if self._last_loaded_step != self.state.global_step:
            self.vllm_generation.sync_weights()
            self._last_loaded_step = self.state.global_step

    def sync_again(self) -> None:
        """Have the next rollout begin with a sync, whatever step the engine's weights are said to be of."""
        self._last_loaded_step = -1

    # Checkpoints

    def _get_output_dir(self, trial: Any) -> str:
        return str(self._store.incoming) if self._saving else super()._get_output_dir(trial)  # type: ignore[misc]

    def create_model_card(self, **kwargs: Any) -> None:
        """No card: it would describe our directories, and TRL writes it into them."""

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """All ranks write below `.incoming/`; rank 0 gives the checkpoint its name once all of them have.

        A full volume does not end the training: the failure is reported and the next save may succeed.
        """
        step, began = self.state.global_step, time.monotonic()
        failure: OSError | None = None
        with self._phases(Phase.CHECKPOINT):
            try:
                if self.args.should_save:
                    self._store.discard()
            except OSError as error:
                failure = error
            # Nobody writes where the first rank finds no directory: it would be made anew, without its fences.
            writable = all_succeeded(failure is None, self.accelerator.device)
            self._saving = True
            try:
                if not writable:
                    raise failure or OSError("the first rank could not write")
                super()._save_checkpoint(model, trial)  # type: ignore[misc]
                self._save_extra(self._store.incoming / f"checkpoint-{step}")
            except (OSError, SafetensorError, RuntimeError, CheckpointException) as error:
                failure = write_failure(error, self._store.directory)
                if failure is None:
                    raise
            finally:
                self._saving = False
            complete = all_succeeded(failure is None, self.accelerator.device)
            if self.args.should_save:
                try:
                    if complete:
                        self._store.commit(step)
                    else:
                        self._store.discard()
                except OSError as error:
                    failure = error
            barrier()
        if not complete and failure is None:
            failure = OSError("another rank could not write its part")
        if failure is None:
            self._saved_step = step
        self._on_saved(step, failure, time.monotonic() - began)

    def remember(self) -> None:
        """Take note of what a checkpoint of the step that has just ended holds beside weights and optimizer."""
        self._boundary = rng.capture(), self._extra()

    def save_last_step(self) -> None:
        """Save the last completed step, out of whose successor an exception has led; nothing where it is saved."""
        if self._boundary is None or from_first(self._saved_step) == self.state.global_step:
            return
        state, extra = self._boundary
        rng.restore(state)
        self._take_up(extra)
        self._save_checkpoint(self.model_wrapped, None)

    def _extra_file(self, checkpoint: Path) -> Path:
        return checkpoint / f"colocated-rank-{self.accelerator.process_index}.pt"

    def _save_extra(self, checkpoint: Path) -> None:
        torch.save(self._extra(), self._extra_file(checkpoint))

    def _extra(self) -> dict[str, Any]:
        """What TRL leaves out: where in the generation window we are, and the engine's generators."""
        return {
            "step": self._step,
            "buffered_inputs": self._buffered_inputs,
            "steps_per_generation": self.args.steps_per_generation,
            "engine_random_state": self.vllm_generation.random_state,
            "token_budget": self._budget.tokens if self._budget.shrunk else None,
            "recompute_all": self._budget.lightened,
            "offload": self.optimizer_states.always,
        }

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]
        if checkpoint is not None:
            file = self._extra_file(Path(checkpoint))
            self._take_up(torch.load(file, map_location=self.accelerator.device, weights_only=True))

    def _take_up(self, extra: dict[str, Any]) -> None:
        # A plan may cut the rollout otherwise than the attempt before did.
        pieces, before = self.args.steps_per_generation, extra["steps_per_generation"]
        self._step = extra["step"] * pieces // before
        self._buffered_inputs = recut(extra["buffered_inputs"], pieces)
        self.vllm_generation.random_state = rng.on_cpu(extra["engine_random_state"])
        if learned := extra.get("token_budget"):
            self._budget.tokens, self._budget.shrunk = min(self._budget.tokens, learned), True
        self.optimizer_states.always = self.optimizer_states.always or extra.get("offload", False)
        self._budget.lightened = extra.get("recompute_all", False)
        if self._budget.lightened:
            self.recompute_all()

    def _get_train_sampler(self, *args: Any, **kwargs: Any) -> Any:
        self._sampler = super()._get_train_sampler(*args, **kwargs)  # type: ignore[misc]
        return self._sampler

    def finished(self, checkpoint: Path) -> bool:
        """Whether `checkpoint` is of the last step; it is loaded then: `train` would train one step beyond it."""
        state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        if state.global_step < state.max_steps:
            return False
        self._load_from_checkpoint(str(checkpoint))
        self.state = state
        return True

    def skip_epochs(self, epochs: int) -> None:
        """Draw the permutations of `epochs` finished epochs, so that a resumed run goes on with the next one."""
        if self._sampler is None or not self._sampler.shuffle:
            return
        for _ in range(epochs):
            torch.randperm(self._sampler.num_samples, generator=self._sampler.generator)


def recut(parts: list[dict[str, Any]] | None, pieces: int) -> list[dict[str, Any]] | None:
    """The micro-batches of a rollout joined and cut into `pieces` equal ones; what has no rows is the same in each."""
    if parts is None or len(parts) == pieces:
        return parts
    whole = {
        name: torch.cat([part[name] for part in parts]) if torch.is_tensor(value) and value.ndim else value
        for name, value in parts[0].items()
    }
    return split_tensor_dict(whole, pieces)


def write_failure(error: BaseException, directory: Path) -> OSError | None:
    """`error` as the failed write below `directory` that it stands for; None if it is something else.

    On a full volume safetensors raises an exception of its own, and torch.save a RuntimeError of its archive writer.
    """
    if isinstance(error, CheckpointException):  # of all ranks that write their parts of a sharded state
        error = next((cause for cause, _ in error.failures.values() if isinstance(cause, Exception)), OSError(error))
    if isinstance(error, OSError):
        return error
    writer = isinstance(error, SafetensorError) or any(words in str(error) for words in TORCH_CANNOT_WRITE)
    if not writer:
        return None
    words = str(error).strip().splitlines()[0]
    free = free_bytes(directory)
    if free is not None and free < FULL:
        words = f"checkpoint.storage: the volume is full, {free} bytes are left: {words}"
    return OSError(words)


class ColocatedGRPOTrainer(Colocated, GRPOTrainer):
    """GRPO. The importance ratio between sampler and trainer comes with the step where its own pass is skipped."""

    vllm_importance_sampling_correction: bool

    def _generate_and_score_completions(self, *args: Any, **kwargs: Any) -> Any:
        wanted = self.vllm_importance_sampling_correction
        # The flag is what TRL's pass for the old log-probabilities hangs on, once rollouts and steps are aligned.
        self.vllm_importance_sampling_correction = wanted and not (self._skips_old and self.model.training)
        try:
            return super()._generate_and_score_completions(*args, **kwargs)
        finally:
            self.vllm_importance_sampling_correction = wanted

    def _on_policy(self, inputs: MicroBatch, log_probs: torch.Tensor) -> MicroBatch:
        if not self.vllm_importance_sampling_correction:
            return {}
        return {"importance_sampling_ratio": self._ratio(inputs, log_probs)}

    def _ratio(self, inputs: MicroBatch, log_probs: torch.Tensor) -> torch.Tensor:
        return importance_ratio(
            log_probs, inputs[SAMPLED], completion_mask(inputs),
            mode=self.vllm_importance_sampling_mode, low=self.vllm_importance_sampling_clip_min,
            high=self.vllm_importance_sampling_clip_max,
        )  # fmt: skip

    def _log_sampling(self, window: Window, rollout: list[Part]) -> None:
        """As TRL does where the pass is not skipped."""
        gather, metrics = self.accelerator.gather, self._metrics["train"]
        found = [(part.inputs, window.log_probs(part), completion_mask(part.inputs)) for part in rollout]
        delta = joined([differences(log_probs, inputs[SAMPLED], mask) for inputs, log_probs, mask in found])
        metrics[DIFFERENCE].append(gather(delta.mean()).mean().item())
        metrics["sampling/sampling_logp_difference/max"].append(gather(delta.max()).max().item())
        if self.vllm_importance_sampling_correction:
            ratios = [(self._ratio(inputs, log_probs), mask.bool()) for inputs, log_probs, mask in found]
            ratio = joined([ratio[mask] if ratio.shape == mask.shape else ratio for ratio, mask in ratios])
            metrics["sampling/importance_sampling_ratio/min"].append(gather(ratio.min()).min().item())
            metrics["sampling/importance_sampling_ratio/mean"].append(gather(ratio.mean()).mean().item())
            metrics["sampling/importance_sampling_ratio/max"].append(gather(ratio.max()).max().item())


class ColocatedRLOOTrainer(Colocated, RLOOTrainer):
    """RLOO. It asks the engine for no log-probabilities, so they are compared with the trainer's here."""

    _placeholder = False
    """While TRL asks for old log-probabilities that nobody needs."""

    def _old_log_probs_needed(self) -> str:
        if self.beta:
            return f"beta is {self.beta}: the divergence from the reference model is part of the reward"
        return super()._old_log_probs_needed()

    def _generate_and_score_completions(self, *args: Any, **kwargs: Any) -> Any:
        self._placeholder = self._skips_old and self.model.training
        try:
            output = super()._generate_and_score_completions(*args, **kwargs)
        finally:
            skipped, self._placeholder = self._placeholder, False
        sampled = [sum(token[0] or 0.0 for token in row) for row in self.vllm_generation.log_probabilities]
        output[SAMPLED_SUMS] = torch.tensor(sampled, device=self.accelerator.device)
        if not skipped:
            self._log_difference(output["old_logps"], output[SAMPLED_SUMS], output["completion_mask"])
        return output

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int, *args: Any,
        **kwargs: Any,
    ) -> Any:  # fmt: skip
        if self._placeholder:  # with beta = 0 the old log-probabilities are all that is asked for in a rollout
            return torch.zeros((len(input_ids), logits_to_keep), device=input_ids.device), None, None
        return super()._get_per_token_logps_and_entropies(
            model, input_ids, attention_mask, logits_to_keep, *args, **kwargs
        )

    def _on_policy(self, inputs: MicroBatch, log_probs: torch.Tensor) -> MicroBatch:
        return {"old_logps": (log_probs * inputs["completion_mask"]).sum(dim=1)}

    def _log_sampling(self, window: Window, rollout: list[Part]) -> None:
        sums = [self._on_policy(part.inputs, window.log_probs(part))["old_logps"] for part in rollout]
        sampled, mask = (
            torch.cat([part.inputs[name] for part in rollout]) for name in (SAMPLED_SUMS, "completion_mask")
        )
        self._log_difference(torch.cat(sums), sampled, mask)

    def _log_difference(self, trainer: torch.Tensor, sampler: torch.Tensor, mask: torch.Tensor) -> None:
        """The mean of |trainer - sampler|, sums over sequences, for each of a sequence's tokens."""
        lengths = mask.sum(dim=1)
        whole = lengths > 0  # truncated completions may be masked away
        mean = ((trainer - sampler).abs()[whole] / lengths[whole]).mean() if whole.any() else trainer.new_zeros(())
        self._metrics["train" if self.model.training else "eval"][DIFFERENCE].append(
            self.accelerator.gather(mean).mean().item()
        )


TRAINERS = {"grpo": ColocatedGRPOTrainer, "rloo": ColocatedRLOOTrainer}
