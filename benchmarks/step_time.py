"""Seconds of a training step: TRL's own colocate mode beside this worker, on one GPU, in turn, each in its own process.

    python benchmarks/step_time.py OUT_DIR --shape 7b --completions 128 --tokens 64-4096 [--side trl] [--side ours]

Both sides get the same model (random Qwen2 of the shape of 7B or 1.5B), prompts, options and lengths: every completion
is as long as it is told, `--tokens 512` each, or anything between two lengths (the same draws on both sides). Versions
are those of the environment. The first step, of short completions, warms up; the figures are medians of the others.
OUT_DIR gets a JSON file a side; the table shows those that are there, so that the two sides of a long case can be run
by two commands. A third side, "transformers", is TRL without an engine.
`--trl` and `--ours` change the options of one side, as JSON: TRL's own names; of ours also "tokens" (at once),
"recompute" (none, selective, half, full) and "compile" (an experiment: torch.compile of each layer). `--kernels` also
lists where the device's time went in the last step, by kernel. `--shape tiny --cpu` is a dry run: TRL's own engine does
not run on CPUs, so both sides then have ours.
"""

import argparse
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "operator/src"), str(ROOT / "runtime/src")]

SIDES = ("trl", "ours", "transformers")
SHAPES: dict[str, dict[str, Any]] = {
    "7b": {
        "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
        "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False,
    },
    "1.5b": {
        "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
        "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True,
    },
    "tiny": {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 320, "tie_word_embeddings": True,
    },
}  # fmt: skip
PROMPT = 64
"""Tokens of a prompt: the tokenizer knows bytes only."""
WARM_UP = 64
"""Tokens of the first step's completions."""
REWARD = """
def reward(completions, completion_ids, **columns):
    return [sum(token % 7 for token in ids) / len(ids) for ids in completion_ids]
"""


class Stopwatch:
    """Seconds and the device's peak by span; what an inner span takes is not counted in the outer one."""

    def __init__(self, synchronize: Callable[[], None], peak: Callable[[], int]) -> None:
        self._synchronize, self._peak = synchronize, peak
        self._open: list[tuple[str, float]] = []
        self.seconds: dict[str, float] = defaultdict(float)
        self.peaks: dict[str, int] = defaultdict(int)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self._book()
        self._open.append((name, time.perf_counter()))
        try:
            yield
        finally:
            self._book()
            self._open.pop()
            if self._open:
                self._open[-1] = (self._open[-1][0], time.perf_counter())

    def _book(self) -> None:
        self._synchronize()
        if self._open:
            name, since = self._open[-1]
            self.seconds[name] += time.perf_counter() - since
            self.peaks[name] = max(self.peaks[name], self._peak())

    def around(self, owner: Any, method: str, name: str) -> None:
        """Time every call of `owner.method`."""
        inner = getattr(owner, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self(name):
                return inner(*args, **kwargs)

        setattr(owner, method, timed)


def lengths(tokens: str) -> Callable[[int], int]:
    """A completion's number of tokens, drawn anew for each."""
    low, _, high = tokens.partition("-")
    draw = random.Random(7)  # noqa: S311
    return lambda _: draw.randint(int(low), int(high or low))


def longest_of(tokens: str) -> int:
    """Of completions as `--tokens` has it."""
    return int(tokens.rpartition("-")[2])


def longest(case: argparse.Namespace) -> int:
    return longest_of(case.tokens)


def options(case: argparse.Namespace, side: str) -> dict[str, Any]:
    """TRL's options of one side."""
    return {
        "max_steps": case.steps, "per_device_train_batch_size": case.micro_batch,
        "gradient_accumulation_steps": case.completions // case.micro_batch, "num_generations": 8,
        "max_completion_length": longest(case), "learning_rate": 1.0e-6, "lr_scheduler_type": "constant", "beta": 0.0,
        "optim": "adamw_torch_fused", "seed": 3, "disable_dropout": True, "logging_steps": 1,
        **json.loads(getattr(case, side)),
    }  # fmt: skip


def write_inputs(case: argparse.Namespace) -> None:
    """The model, the prompts and the reward, unless they are there from an earlier run."""
    import torch
    from tests.unit.worker import tiny_model
    from transformers import Qwen2Config, Qwen2ForCausalLM

    where = case.work / case.shape
    if not (where / "config.json").exists():
        config = Qwen2Config(
            **SHAPES[case.shape], max_position_embeddings=131072, eos_token_id=2, bos_token_id=None, pad_token_id=0
        )
        torch.manual_seed(7)
        with torch.device("cpu" if case.cpu else "cuda"):
            Qwen2ForCausalLM(config).to(torch.bfloat16).save_pretrained(where)
        tiny_model.tokenizer().save_pretrained(where)
    draw = random.Random(5)  # noqa: S311
    prompts = ["".join(draw.choices("abcdefghij", k=PROMPT)) for _ in range(max(64, case.completions))]
    (case.work / "prompts.jsonl").write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    (case.work / "rewards/bench").mkdir(parents=True, exist_ok=True)
    (case.work / "rewards/bench/bench_reward.py").write_text(REWARD)


def build_trl(case: argparse.Namespace, *, engine: bool = True) -> Any:
    """TRL's trainer with its own colocated engine, or generating by transformers."""
    from datasets import load_dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    sys.path.insert(0, str(case.work / "rewards/bench"))
    from bench_reward import reward

    model = str(case.work / case.shape)
    arguments = {
        "output_dir": str(case.work / "trl"), "report_to": "none", "save_strategy": "no", "bf16": True,
        "use_cpu": case.cpu, "model_init_kwargs": {"dtype": "bfloat16", "device_map": None},
        "use_vllm": engine and not case.cpu, "vllm_mode": "colocate", "vllm_enable_sleep_mode": True,
        "vllm_gpu_memory_utilization": case.utilization, "vllm_max_model_length": PROMPT + longest(case),
        **options(case, "trl"),
    }  # fmt: skip
    if not engine:
        arguments["generation_kwargs"] = {"min_new_tokens": longest(case)}
    trainer = GRPOTrainer(
        model=model, reward_funcs=[reward], args=GRPOConfig(**arguments),
        train_dataset=load_dataset("json", data_files=str(case.work / "prompts.jsonl"), split="train"),
        processing_class=AutoTokenizer.from_pretrained(model, padding_side="left"),
    )  # fmt: skip
    if case.cpu and engine:
        from colocated_runtime.worker.trainers import Colocated

        trainer.args.use_vllm = trainer.use_vllm = True
        trainer._last_loaded_step = -1
        trainer.vllm_generation = cpu_engine(trainer, Colocated._sampling(trainer), case)
    return trainer


def cpu_engine(trainer: Any, sampling: Any, case: argparse.Namespace) -> Any:
    from contextlib import nullcontext
    from types import SimpleNamespace

    from colocated_runtime.planner.settings import EngineSettings
    from colocated_runtime.worker.engine import Engine

    class Phases(SimpleNamespace):
        def __call__(self, phase: Any) -> Any:
            return nullcontext()

    class NoStop:
        def seen(self) -> bool:
            return False

        agreed = seen

    settings = EngineSettings(0.3, 0, PROMPT + longest(case), case.completions)
    return Engine(
        trainer.model, case.work / case.shape, settings=settings, sampling=sampling,
        phases=Phases(
            sample=lambda: None, beat=lambda: None, handover=lambda what: nullcontext(SimpleNamespace(bytes=0))
        ),
        stop=NoStop(), tensor_parallel=1, seed=3, dtype="bfloat16", trust_remote_code=False,
    )  # fmt: skip


def build_ours(case: argparse.Namespace) -> Any:
    """The worker's job, as a pod runs it; the plan's choices may be overridden."""
    from colocated_runtime.contract.attempt import Attempt
    from colocated_runtime.planner.settings import StepSettings
    from colocated_runtime.worker import environment
    from colocated_runtime.worker.job import Job
    from colocated_runtime.worker.pressure import TokenBudget
    from colocated_runtime.worker.state import StateFile

    trainer = options(case, "ours")
    tokens, recompute, compiled = (trainer.pop(name, None) for name in ("tokens", "recompute", "compile"))
    spec = {
        "model": {"source": f"file://{case.work / case.shape}", "dtype": "bfloat16"},
        "dataset": {"source": f"file://{case.work}/prompts.jsonl", "conversational": False},
        "rewards": [{"function": "bench_reward:reward", "configMap": "bench"}], "trainer": trainer,
        "memory": {"gpuMemoryUtilization": case.utilization}, "checkpoint": {"everySteps": 1_000_000},
        "gpusPerNode": 0 if case.cpu else 1,
    }  # fmt: skip
    attempt = Attempt(
        name="bench", namespace="default", uid="0123456789", generation=1, attempt=1, hosts=["localhost"],
        storage_uri="file:///bench", spec=spec,
    )  # fmt: skip
    place = case.work / "ours"
    paths = environment.Paths(place / "attempt.json", place / "state", place / "storage", case.work / "rewards")
    job = Job(attempt, paths, StateFile(paths.rank_file(0), 0))
    if tokens or recompute:
        settings = job.trainer._settings
        settings = StepSettings(settings.own_step, tokens or settings.tokens, recompute or settings.recompute)
        job.trainer.set_up_step(settings, TokenBudget(settings.tokens, job.phases.pressure), job.meter)
    if compiled:
        for layer in job.trainer.model.get_decoder().layers:
            layer.compile(dynamic=True)
    job.trainer.save_model = lambda *args, **kwargs: None
    job.trainer._save_checkpoint = lambda *args, **kwargs: None
    return job.trainer


def measure(case: argparse.Namespace, side: str) -> dict[str, Any]:
    """Train and time every step of one side."""
    from colocated_runtime.worker import environment

    environment.prepare(os.environ, "cpu" if case.cpu else "cuda")
    import torch
    import transformers
    import trl
    import vllm

    from colocated_runtime.worker.phases import cuda_usage

    began = time.perf_counter()
    trainer = BUILD[side](case)
    started = time.perf_counter() - began
    clock = Stopwatch(
        (lambda: None) if case.cpu else torch.cuda.synchronize, (lambda: 0) if case.cpu else lambda: cuda_usage().peak
    )
    time_generation(trainer, clock, case)
    clock.around(trainer, "_calculate_rewards", "rewards")
    clock.around(trainer, "_generate_and_score_completions", "score")
    trainer.add_callback(timer := Timer(clock))
    if case.kernels:
        trainer.add_callback(Kernels(case.steps, case.out / f"{name_of(case)}-{side}-kernels.txt"))
    trainer.train()
    steps = timer.steps[1:] or timer.steps
    done = {name: round(statistics.median(step[name] for step in steps), 3) for name in steps[0]}
    return {
        "case": {"shape": case.shape, "completions": case.completions, "tokens": case.tokens}, "side": side,
        "versions": {module.__name__: module.__version__ for module in (torch, vllm, trl, transformers)},
        "device": "cpu" if case.cpu else torch.cuda.get_device_name(), "options": options(case, side),
        "utilization": case.utilization, "start_seconds": round(started, 1), "median": done,
        "steps": [{name: round(value, 3) for name, value in step.items()} for step in timer.steps],
        "peak_gib": {name: round(value / 2**30, 1) for name, value in clock.peaks.items()},
        "logged": {name: trainer.state.log_history[0].get(name) for name in ("loss", "reward", "entropy", "grad_norm")},
        "pressure": [event.message for event in pressure(trainer)],
    }  # fmt: skip


def time_generation(trainer: Any, clock: Stopwatch, case: argparse.Namespace) -> None:
    """Set the completions' lengths, and time what makes them; with transformers they are all of the longest."""
    if not trainer.use_vllm:
        clock.around(trainer, "_generate_single_turn", "decode")
        return
    engine = trainer.vllm_generation
    ours = hasattr(engine, "_run")  # which calls no `LLM.generate`: it looks for a stop between engine steps
    tell_lengths(engine.llm, "enqueue" if ours else "generate", lengths(case.tokens))
    clock.around(*(engine, "_run") if ours else (engine.llm, "generate"), "decode")
    clock.around(engine, "sync_weights", "sync")
    clock.around(engine, "generate", "switch")


BUILD = {"trl": build_trl, "ours": build_ours, "transformers": lambda case: build_trl(case, engine=False)}


def pressure(trainer: Any) -> list[Any]:
    return list(trainer._phases._state.state.pressure) if hasattr(trainer, "_phases") else []


def tell_lengths(llm: Any, method: str, length: Callable[[int], int]) -> None:
    """Have the engine make each completion as long as it is told, whatever the random model says."""
    generate, calls = getattr(llm, method), itertools.count()

    def with_lengths(requests: list[Any], sampling_params: Any, **kwargs: Any) -> Any:
        most = WARM_UP if next(calls) == 0 else sampling_params.max_tokens
        each = []
        for index in range(len(requests)):
            params = sampling_params.clone()
            params.max_tokens = params.min_tokens = min(length(index), most)
            params.ignore_eos = True
            each.append(params)
        return generate(requests, sampling_params=each, **kwargs)

    setattr(llm, method, with_lengths)


def Timer(clock: Stopwatch) -> Any:  # noqa: N802
    """A callback that keeps each step's seconds by span; what is in no span of its own is training."""
    from transformers import TrainerCallback

    class StepTimer(TrainerCallback):
        steps: list[dict[str, float]] = []  # noqa: RUF012

        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            clock.seconds.clear()
            self.open = clock("train")
            self.open.__enter__()
            self.began = time.perf_counter()

        def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
            self.optimizer = clock("optimizer")
            self.optimizer.__enter__()

        def on_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
            self.optimizer.__exit__(None, None, None)

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            self.open.__exit__(None, None, None)
            self.steps.append({"step": time.perf_counter() - self.began, **clock.seconds})

    return StepTimer()


def Kernels(step: int, file: Path) -> Any:  # noqa: N802
    """A callback that writes a table of the device's time by kernel in one step, counted from 1; it slows that step."""
    from torch.profiler import ProfilerActivity, profile
    from transformers import TrainerCallback

    class KernelTimes(TrainerCallback):
        def on_step_begin(self, _args: Any, state: Any, *args: Any, **kwargs: Any) -> None:
            if state.global_step + 1 == step:
                self.profile = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True)
                self.profile.__enter__()

        def on_step_end(self, _args: Any, state: Any, *args: Any, **kwargs: Any) -> None:
            if state.global_step == step:
                self.profile.__exit__(None, None, None)
                found = self.profile.key_averages()
                file.write_text(found.table(sort_by="self_device_time_total", row_limit=60, max_name_column_width=90))

    return KernelTimes()


def name_of(case: argparse.Namespace) -> str:
    return f"{case.shape}-{case.completions}x{case.tokens}"


def table(results: dict[str, dict[str, Any]]) -> str:
    """Markdown: seconds by span, and the ratio where both sides are there."""
    spans = list(dict.fromkeys(name for result in results.values() for name in result["median"]))
    sides = [side for side in SIDES if side in results]
    lines = [f"| seconds | {' | '.join(sides)} | ratio |", f"|---|{'---|' * (len(sides) + 1)}"]
    for span in spans:
        values = [results[side]["median"].get(span, 0.0) for side in sides]
        ratio = f"{values[0] / values[1]:.2f}" if len(values) > 1 and values[1] else ""
        lines.append(f"| {span} | {' | '.join(f'{value:.3f}' for value in values)} | {ratio} |")
    peaks = [max(results[side]["peak_gib"].values(), default=0) for side in sides]
    return "\n".join([*lines, f"| peak GiB | {' | '.join(map(str, peaks))} | |"])


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="7b")
    parser.add_argument("--completions", type=int, default=64, help="of a step")
    parser.add_argument("--tokens", default="512", help="of a completion: 512, or 64-4096")
    parser.add_argument("--steps", type=int, default=4, help="with the one that warms up")
    parser.add_argument("--micro-batch", type=int, default=8)
    parser.add_argument("--utilization", type=float, default=0.3, help="the engine's share of the GPU")
    parser.add_argument("--side", action="append", choices=SIDES, help="trl and ours, one after the other, unless said")
    parser.add_argument("--trl", default="{}")
    parser.add_argument("--ours", default="{}")
    parser.add_argument("--transformers", default="{}")
    parser.add_argument("--kernels", action="store_true", help="time by kernel of the last step, into OUT_DIR")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--work", type=Path, default=Path("/tmp/step-time"), help="for models and scratch")  # noqa: S108
    parser.add_argument("--child", choices=("inputs", *SIDES), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    case = parsed()
    case.out.mkdir(parents=True, exist_ok=True)
    name = name_of(case)
    if case.child == "inputs":
        write_inputs(case)
        return 0
    if case.child:
        (case.out / f"{name}-{case.child}.json").write_text(json.dumps(measure(case, case.child)))
        return 0
    for child in ("inputs", *(case.side or ("trl", "ours"))):
        with (case.out / f"{name}-{child}.log").open("w") as log:
            code = subprocess.run([sys.executable, *sys.argv, "--child", child], stdout=log, stderr=log).returncode
        print(json.dumps({"case": name, "part": child, "exit": code}), flush=True)
        if code:
            print((case.out / f"{name}-{child}.log").read_text()[-3000:])
    results = {
        side: json.loads(file.read_text()) for side in SIDES if (file := case.out / f"{name}-{side}.json").exists()
    }
    for result in results.values():
        print(json.dumps(result))
    print(table(results))
    return 0 if results else 1


if __name__ == "__main__":
    sys.exit(main())
