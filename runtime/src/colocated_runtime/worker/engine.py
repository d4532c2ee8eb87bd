"""The vLLM engine inside the trainer's process, behind the interface that TRL's trainers call.

The only module that touches vLLM. Tested on vLLM 0.24.0 (CUDA) and 0.31.0 (CPU): sleep, memory release and weight
update differ between versions, so others are refused unless the user insists.
"""

import itertools
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import vllm
from vllm import LLM, ModelRegistry, SamplingParams
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.sampling_params import StructuredOutputsParams

from colocated_runtime.contract.report import Phase
from colocated_runtime.planner.settings import EngineSettings
from colocated_runtime.worker import checksums, ranks, rng
from colocated_runtime.worker.errors import STALE, Stopped, UserError, WeightsStale
from colocated_runtime.worker.phases import Moved, Phases
from colocated_runtime.worker.stopping import StopSignal
from colocated_runtime.worker.switch import Switch
from colocated_runtime.worker.weights import policy_weights, shared_out

TESTED = ("0.24.0", "0.31.0")
INSIST = "COLOCATED_ALLOW_UNTESTED_VLLM"
TOKENS_A_STEP = 4096
"""max_num_batched_tokens, as TRL sets it: vLLM's own default makes its memory profile too pessimistic."""

STEPS_A_LOOK = 16
"""Engine steps between two looks for the launcher's wish to leave."""

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
TokenIds = list[int]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sampling:
    """How completions are drawn: TRL's option names and meanings."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float | None
    repetition_penalty: float
    max_completion_length: int
    generation_kwargs: dict[str, Any] = field(default_factory=dict)

    def params(self, **changes: Any) -> SamplingParams:
        """For vLLM. No text and flat log-probabilities: both cost host time for every token."""
        options: dict[str, Any] = {
            "n": 1,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "min_p": self.min_p or 0.0,
            "repetition_penalty": self.repetition_penalty,
            "max_tokens": self.max_completion_length,
            "logprobs": 0,
            "flat_logprobs": True,
            **self.generation_kwargs,
            **changes,
        }
        if isinstance(options.get("structured_outputs"), dict):
            options["structured_outputs"] = StructuredOutputsParams(**options["structured_outputs"])
        return SamplingParams(detokenize=bool(options.get("stop")), **options)


class Engine:
    """One vLLM engine for each group of `tensor_parallel` ranks; generates and gives its memory back.

    Its random generators are its own: vLLM seeds the process's, so the trainer's are put back after every call.
    """

    def __init__(
        self,
        model: Any,
        path: Path,
        *,
        settings: EngineSettings,
        sampling: Sampling,
        phases: Phases,
        stop: StopSignal,
        tensor_parallel: int,
        seed: int,
        dtype: str,
        trust_remote_code: bool,
        on_stale: Callable[[str], None] = lambda message: None,
    ) -> None:
        """`on_stale` is told where the engine's weights are not the trainer's before a rollout; "" once they are."""
        refuse_untested(vllm.__version__)
        self._model = model
        self._phases = phases
        self._stop = stop
        self._on_stale = on_stale
        self._tensor_parallel = tensor_parallel
        self.sampling = sampling
        ranks.join()
        self._ranks = _rank_variables()
        self._tp_group = _tensor_parallel_group(tensor_parallel)
        # Ranks that sync together: all of them where each has a part of every weight.
        self._sync_together = tensor_parallel > 1 or shared_out(model)
        self._sync_group = None if shared_out(model) else self._tp_group
        if tensor_parallel > 1 and not torch.cuda.is_available():
            _forget_the_dead()
        group = int(self._ranks["RANK"]) // tensor_parallel
        # It renders a chat to be warm for users who send some, and shows a traceback where that exceeds max_model_len.
        logging.getLogger("vllm.renderers.base").setLevel(logging.ERROR)
        with rng.preserved():
            inspect_here(model.config.architectures)
            self.llm = LLM(
                model=str(path),
                load_format="dummy",  # the weights come from the trainer
                dtype=dtype,
                tensor_parallel_size=tensor_parallel,
                distributed_executor_backend="external_launcher",
                gpu_memory_utilization=settings.gpu_memory_utilization,
                kv_cache_memory_bytes=settings.kv_cache_bytes or None,
                max_model_len=settings.max_model_len,
                max_num_seqs=settings.max_num_seqs,
                max_num_batched_tokens=max(TOKENS_A_STEP, settings.max_num_seqs),
                enable_sleep_mode=settings.sleep_level > 0,
                enforce_eager=not torch.cuda.is_available(),
                # With temperature and penalties applied, as the trainer's own log-probabilities are.
                logprobs_mode="processed_logprobs",
                seed=group,
                trust_remote_code=trust_remote_code,
            )
        # It warns at every sync of layers without weights of their own, such as a head tied to the embedding.
        # vLLM resets its loggers when an engine starts.
        logging.getLogger("vllm.model_executor.model_loader.reload.layerwise").setLevel(logging.ERROR)
        # All ranks of a group must draw the same tokens, no two groups should.
        self.random_state = rng.seeded(seed * 1_000_003 + group)
        self.log_probabilities: list[list[list[float | None]]] = []
        """Of the last rollout, as `generate` returned them."""
        self._switch = Switch(self.llm, settings, phases)
        self._handed: dict[str, torch.Tensor] = {}
        """Of what the engine was given last."""
        self._load()
        self._fresh = True
        self._comparable = checksums.comparable(self._held(), self._handed, self._tp_group)
        log.info(
            "before each rollout checksums tell whether %d of the engine's tensors are the trainer's; its"
            " log-probabilities speak for all",
            len(self._comparable),
        )
        self._sleep()

    @property
    def max_model_len(self) -> int:
        """Longest prompt + completion, in tokens."""
        return int(self.llm.llm_engine.model_config.max_model_len)

    def when_short_of_memory(self, spare: Callable[[], int]) -> None:
        """Call `spare` where the engine would not find the room to wake; it returns the bytes that it freed."""
        self._switch.spare = spare

    def sync_weights(self) -> None:
        """Give the engine the trainer's present weights, and forget what it cached under the old ones."""
        self._switch.make_room()
        with self._phases(Phase.SYNC):
            self._switch.wake("weights")
            self._load()
            self._fresh = True

    def _load(self) -> None:
        """Hand all weights over, in one call."""
        self._handed.clear()
        with self._phases.handover("load weights") as moved:
            self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": counted(self._weights(), moved)})
            if torch.cuda.is_available():
                torch.cuda.synchronize()  # the checksums wait for it anyway
            else:
                self.llm.apply_model(_repack_heads)
        self._trained = checksums.of_trained(self._model)
        self.llm.reset_prefix_cache()

    def _make_sure(self) -> None:
        """Load once more where the engine has not the trainer's weights; raise WeightsStale if that does not help.

        Before the rollout, not after the sync: what has come over the weights meanwhile is found too, and a sync that
        was left out.
        """
        with self._phases(Phase.SYNC):
            if not (stale := self._stale()):
                return
            log.error("%s; once more", stale)
            self._on_stale(stale)
            self._load()
            if stale := self._stale():
                raise WeightsStale(f"{stale}, also after one more sync: {STALE}")
            self._on_stale("")

    def _stale(self) -> str:
        """What is wrong with the engine's weights, by checksums; empty if nothing is."""
        stale = sorted(self._comparable - checksums.equal(self._held(), self._handed, self._tp_group))
        moved = checksums.of_trained(self._model) != self._trained
        wrong = moved or bool(stale)
        if self._sync_together:
            wrong = ranks.any_true(wrong, self._model.device, self._sync_group)
        if not wrong:
            return ""
        if moved:
            return "the trainer's weights have changed since the engine was given them"
        first = f", {' + '.join(stale[0])} first" if stale else ", but another rank's are"
        return f"{len(stale)} of the engine's tensors are not the trainer's{first}"

    def _held(self) -> dict[checksums.Parts, torch.Tensor]:
        (sums,) = self.llm.apply_model(checksums.of_engine)
        found: dict[checksums.Parts, torch.Tensor] = sums
        return found

    def generate(
        self,
        prompts: list[TokenIds],
        images: list[Any] | None,
        num_generations: int,
        profiler: AbstractContextManager[Any] | None = None,
    ) -> tuple[list[TokenIds], list[TokenIds], list[list[list[float | None]]], None]:
        """Sample one completion for each of `prompts`, which hold the `num_generations` duplicates of each prompt.

        Returns prompt ids, completion ids, log-probabilities [completion][token][1] (None for NaN), and None.
        Raise Stopped, on all ranks, where the launcher asks to leave meanwhile.
        """
        del num_generations  # the prompts come repeated
        if images is not None:
            raise UserError("dataset: images are not supported; use a text-only dataset")
        with profiler or nullcontext(), rng.preserved():
            rng.restore(self.random_state)
            outputs = self._generate(prompts, self.sampling.params())
            self.random_state = rng.capture()
        completions = [list(output.token_ids) for output in outputs]
        self.log_probabilities = [_log_probabilities(output) for output in outputs]
        return prompts, completions, self.log_probabilities, None

    def generate_greedy(self, prompts: list[TokenIds]) -> list[TokenIds]:
        """The most likely completion of each of `prompts`; draws no random numbers."""
        params = self.sampling.params(
            temperature=0.0, top_p=1.0, top_k=0, min_p=0.0, logprobs=None, flat_logprobs=False
        )
        with rng.preserved():
            return [list(output.token_ids) for output in self._generate(prompts, params)]

    def shutdown(self) -> None:
        """End the engine, and the process group with it; the interpreter's exit would do it in no good order."""
        self.llm.llm_engine.engine_core.shutdown()

    def _generate(self, prompts: list[TokenIds], params: SamplingParams) -> list[Any]:
        if not self._fresh:
            self.sync_weights()
        self._make_sure()
        sizes, everything = self._gathered(prompts)
        self._switch.make_room()
        self._switch.wake("kv_cache")
        requests = [{"prompt_token_ids": ids} for ids in everything]
        outputs = self._run(self.llm.enqueue(requests, sampling_params=params, use_tqdm=False))
        self._phases.sample()
        self._sleep()
        # One rank may have broken off what another has finished: neither goes on.
        if self._stop.agreed():
            raise Stopped
        member = int(self._ranks["RANK"]) % self._tensor_parallel
        first = sum(sizes[:member])
        return [output.outputs[0] for output in outputs[first : first + sizes[member]]]

    def _run(self, requests: list[str]) -> list[Any]:
        """The finished outputs of `requests`, in their order; fewer where the launcher asks to leave.

        The ranks of a tensor-parallel group look at the same engine steps, each of which they take together.
        """
        engine = self.llm.llm_engine
        outputs: list[Any] = []
        for step in itertools.count():
            if not engine.has_unfinished_requests():
                break
            if step % STEPS_A_LOOK == 0:
                self._phases.beat()
                if self._stop.agreed(self._tp_group) if self._tp_group else self._stop.seen():
                    self._abort(requests)
                    break
            outputs += [output for output in engine.step() if output.finished]
        return sorted(outputs, key=lambda output: int(output.request_id))

    def _abort(self, requests: list[str]) -> None:
        """End `requests` and step until the engine holds nothing of them any more."""
        engine = self.llm.llm_engine
        engine.abort_request(requests, internal=True)
        core = engine.engine_core.engine_core
        while core.scheduler.has_requests() or core.batch_queue:
            engine.step()

    def _gathered(self, prompts: list[TokenIds]) -> tuple[list[int], list[TokenIds]]:
        """Prompts of all ranks of the group, which generate them together, and how many each rank brought."""
        if self._tp_group is None:
            return [len(prompts)], prompts
        parts: list[Any] = [None] * self._tensor_parallel
        torch.distributed.all_gather_object(parts, prompts, group=self._tp_group)
        return [len(part) for part in parts], [ids for part in parts for ids in part]

    def _weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        return checksums.noted(policy_weights(self._model), self._handed)

    def _sleep(self) -> None:
        if self._switch.sleep():
            self._fresh = False


def refuse_untested(version: str) -> None:
    """Raise UserError unless `version` is tested or the user insists."""
    if version.split("+")[0] not in TESTED and os.environ.get(INSIST) != "1":
        raise UserError(
            f"runtime.image: it has vLLM {version}; tested are {' and '.join(TESTED)}. Set {INSIST}=1 in runtime.env to"
            " try it all the same"
        )


def counted(weights: Iterator[tuple[str, torch.Tensor]], moved: Moved) -> Iterator[tuple[str, torch.Tensor]]:
    """`weights`, and how many bytes of them have been taken."""
    for name, tensor in weights:
        moved.bytes += tensor.nbytes
        yield name, tensor


def inspect_here(architectures: list[str] | None) -> None:
    """Have vLLM look at the model's class in this process.

    vLLM 0.24 to 0.31 does so in another one, which imports everything anew (16 s, unless its cache knows the class), so
    as not to touch CUDA in a process that may fork later; here the trainer has done so anyway.
    """
    for architecture in architectures or []:
        known = ModelRegistry.models.get(architecture)
        with suppress(ImportError):  # vLLM says it better
            if known is not None:
                ModelRegistry.register_model(architecture, known.load_model_cls())


def _repack_heads(model: torch.nn.Module) -> None:
    """Pack the output head anew: on CPU it multiplies with a packed copy, which a reload of the embedding that it is
    tied to leaves as it was."""
    for module in model.modules():
        if isinstance(module, ParallelLMHead):
            module.quant_method.process_weights_after_loading(module)


def _log_probabilities(output: Any) -> list[list[float | None]]:
    values: Sequence[float] = output.logprobs.logprobs
    return [[None if value != value else value] for value in values]  # NaN alone differs from itself


def _forget_the_dead() -> None:
    """Remove shared memory of killed engines, which no process maps any more.

    vLLM on CPUs (0.31) names it by ranks alone and refuses to start where a file of that name is left.
    """
    mapped = "".join(_maps(process) for process in Path("/proc").glob("[0-9]*"))
    for left in SHARED_MEMORY.glob("*-cpushm_*"):
        if str(left) not in mapped:
            left.unlink(missing_ok=True)


def _maps(process: Path) -> str:
    try:
        return (process / "maps").read_text()
    except OSError:  # it has ended, or is not ours to look at
        return ""


def _rank_variables() -> dict[str, str]:
    """Set what vLLM's external launcher reads, also where the rank is alone and torchrun's variables are hidden."""
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}.items():
        os.environ.setdefault(name, value)
    return {name: os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}


def _tensor_parallel_group(size: int) -> Any:
    if size == 1:
        return None
    ranks = range(torch.distributed.get_world_size())
    groups = [list(ranks[first : first + size]) for first in range(0, len(ranks), size)]
    group, _ = torch.distributed.new_subgroups_by_enumeration(groups)
    return group
