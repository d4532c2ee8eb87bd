"""One rank's job from start to end: prompts, trainer and engine, training, evaluation, the final model."""

import functools
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from transformers import AutoConfig, AutoTokenizer

from colocated_runtime.contract import names
from colocated_runtime.contract.attempt import Attempt
from colocated_runtime.contract.grace import LEAVING
from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.plan import Plan
from colocated_runtime.contract.report import (
    EVALUATIONS_KEPT,
    Checkpoint,
    Evaluation,
    Phase,
    Progress,
    Weights,
    first_and_newest,
)
from colocated_runtime.files import replace_text
from colocated_runtime.planner import config_file
from colocated_runtime.planner.settings import EngineSettings, StepSettings, engine_settings, step_settings
from colocated_runtime.worker import callbacks, checks, config, model_files, ranks, trial
from colocated_runtime.worker.checkpoints import MODEL, CheckpointStore
from colocated_runtime.worker.dataset import load_prompts
from colocated_runtime.worker.engine import Engine, Sampling
from colocated_runtime.worker.environment import Paths
from colocated_runtime.worker.errors import Stopped, UserError
from colocated_runtime.worker.evaluation import Evaluator
from colocated_runtime.worker.export import export_model, take_part
from colocated_runtime.worker.phases import Phases, cuda_limit, cuda_usage, no_device
from colocated_runtime.worker.picture import picture
from colocated_runtime.worker.rewards import build_rewards
from colocated_runtime.worker.sources import Sources
from colocated_runtime.worker.state import StateFile
from colocated_runtime.worker.stopping import StopSignal
from colocated_runtime.worker.throughput import Meter, Work, work_of
from colocated_runtime.worker.trace import Trace
from colocated_runtime.worker.trainers import TRAINERS, Collaborators
from colocated_runtime.worker.weights import refuse_uncovered

EVALUATIONS = "evaluation.jsonl"
log = logging.getLogger(__name__)


class Job:
    """The parts of one rank, in the order in which they are made."""

    def __init__(self, attempt: Attempt, paths: Paths, state: StateFile) -> None:
        self.attempt = attempt
        self.spec = attempt.spec
        self.paths = paths
        self.plan = read_plan(paths.plan_file)
        self.state = state
        assert self.spec.model is not None
        self.sources = Sources(paths.sources_file)
        source = self.spec.model.source
        self.model_path = self.sources.local("model", source, "model.source", self.spec.model.revision)
        model_files.refuse_incomplete(self.model_path, "model.source", source)
        self.directory = paths.storage / attempt.directory
        self.logs = self.directory / names.log_directory(attempt.attempt)
        rank = state.state.rank
        trace = Trace(self.logs / f"rank-{rank}.trace.json", rank, lambda error: self._cannot_write(f"trace: {error}"))
        on_cpu = self.spec.backend == "cpu"
        if not on_cpu:  # before anything asks a device: the default is the node's first, for every rank
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        self.phases = Phases(state, *((no_device, 0) if on_cpu else (cuda_usage, cuda_limit())), trace)
        self.meter = Meter(self.phases, None if on_cpu else self._work())
        self.store = CheckpointStore(self.directory, attempt.attempt, self.spec.checkpoint.keep)
        self._load_data()
        self._build()

    def _load_data(self) -> None:
        spec = self.spec
        assert spec.dataset is not None
        self.tokenizer = load_tokenizer(self.model_path, spec)
        self.train_rows = load_prompts(spec.dataset, self.sources, "dataset")
        checks.chat_template(self.tokenizer, "dataset", self.train_rows["prompt"])
        self.eval_rows = None
        if spec.evaluation:
            limit = spec.evaluation.max_prompts
            self.eval_rows = load_prompts(spec.evaluation.dataset, self.sources, "evaluation.dataset", limit=limit)
            checks.chat_template(self.tokenizer, "evaluation.dataset", self.eval_rows["prompt"])

    def _build(self) -> None:
        spec = self.spec
        args = config.training_config(spec, self.directory, self.plan)
        trial.options(args)
        checks.prompt_count(len(self.train_rows), args)
        settings, step = self._settings(args)
        if args.process_index == 0:
            self.store.take()
        device = args.device
        rewards = build_rewards(spec, self.sources, self.paths.rewards, str(device), self.phases.handover)
        report = callbacks.Report(self.state, difference_limit=self._difference_limit(args))
        self.signal = StopSignal(self.paths.stop_file, device)
        self.stop = callbacks.Stop(self.signal)
        boundary = callbacks.Boundary(self.phases)
        self.skip_epochs = callbacks.SkipEpochs()
        every = spec.evaluation.every_steps if spec.evaluation else 0
        with trial.model_options(spec.trainer.get("model_init_kwargs")):
            self.trainer = TRAINERS[spec.algorithm](
                collaborators=Collaborators(
                    phases=self.phases,
                    store=self.store,
                    make_engine=functools.partial(self._make_engine, settings, args.seed),
                    step=step,
                    meter=self.meter,
                    on_saved=self._saved,
                ),
                model=str(self.model_path),
                reward_funcs=rewards,
                args=args,
                train_dataset=self.train_rows,
                processing_class=self.tokenizer,
                peft_config=config.peft_config(spec),
                callbacks=[
                    boundary,
                    report,
                    callbacks.Evaluate(self._evaluate, every),
                    self.stop,
                    self.skip_epochs,
                ],
            )
        self.skip_epochs.skip = self.trainer.skip_epochs
        boundary.remember = self.trainer.remember
        report.sync_again = self.trainer.sync_again
        report.rates = lambda step: self.meter.rates(step, functools.partial(ranks.total, device=device))
        self.evaluator = Evaluator(self.trainer, self.eval_rows, self.phases) if self.eval_rows is not None else None

    def _settings(self, args: Any) -> tuple[EngineSettings, StepSettings]:
        options = args.chat_template_kwargs
        lengths = checks.prompt_lengths(self.tokenizer, "dataset", list(self.train_rows["prompt"]), options)
        if self.eval_rows is not None:
            held_out = list(self.eval_rows["prompt"])
            lengths += checks.prompt_lengths(self.tokenizer, "evaluation.dataset", held_out, options)
        found = AutoConfig.from_pretrained(self.model_path, trust_remote_code=args.trust_remote_code).get_text_config()
        checks.adapters(self.spec.lora, tied=bool(getattr(found, "tie_word_embeddings", False)))
        limit = found.max_position_embeddings
        settings = engine_settings(self.spec, self.plan)
        length = checks.engine_length(max(lengths), args.max_completion_length, settings.max_model_len, limit)
        longest = max(lengths) + args.max_completion_length
        return replace(settings, max_model_len=length), step_settings(
            self.spec, args.per_device_train_batch_size, longest, self.plan
        )

    def _work(self) -> Work | None:
        assert self.spec.model is not None
        return work_of(
            self.model_path / config_file.NAME, torch.cuda.get_device_name(), self.spec.resource_name,
            self.spec.model.dtype, frozen=self.spec.lora is not None,
        )  # fmt: skip

    def _difference_limit(self, args: Any) -> float | None:
        assert self.spec.model is not None
        if config.changes_distribution(args):
            return None
        return callbacks.DIFFERENCE_LIMITS[self.spec.model.dtype]

    def _make_engine(self, settings: EngineSettings, seed: int, model: Any, sampling: Sampling) -> Engine:
        assert self.spec.model is not None
        refuse_uncovered(model, self.model_path)
        return Engine(
            model,
            self.model_path,
            settings=settings,
            sampling=sampling,
            phases=self.phases,
            stop=self.signal,
            tensor_parallel=self.spec.parallelism.tensor_parallel,
            seed=seed,
            dtype=self.spec.model.dtype,
            trust_remote_code=self.spec.model.trust_remote_code,
            on_stale=self._stale,
        )

    def _stale(self, message: str) -> None:
        self.state.update(weights=Weights(in_sync=not message, step=self.state.state.progress.step, message=message))

    def close(self) -> None:
        """End the engine and leave the process group, so that the other ranks and the exit find nothing half-open."""
        self.trainer.vllm_generation.shutdown()
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()

    # The run

    def run(self) -> Outcome:
        """Train to the end, or to a stop. Returns Complete or Preempted; raises what went wrong."""
        try:
            return self._run()
        except Stopped:
            self.trainer.save_last_step()
            return Outcome.PREEMPTED
        finally:
            self.phases.finish()
            self._draw()

    def _run(self) -> Outcome:
        checkpoint = self._resume_from()
        self._recall_evaluations()
        self.signal.count_from_now()
        if self.signal.agreed():
            return Outcome.PREEMPTED
        if not self.state.state.evaluations and checkpoint is None:
            self._evaluate(0)
        if checkpoint and self.trainer.finished(checkpoint):
            done = self.trainer.state
            self.state.update(progress=Progress(step=done.global_step, total_steps=done.max_steps))
        else:
            with self.phases(Phase.TRAIN):  # the optimizer's step is between the trainer's own phases
                self.trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        if self.stop.stopped:
            return Outcome.PREEMPTED
        self._evaluate(self.trainer.state.global_step)
        self._export()
        return Outcome.COMPLETE

    def _resume_from(self) -> Path | None:
        """The newest complete checkpoint, rank 0's word for all; says which torn ones it passed over."""
        newest: Path | None = ranks.from_first(self._newest() if self.trainer.accelerator.is_main_process else None)
        if newest is None:
            if self.attempt.attempt > 1:  # what earlier attempts saved is gone, as from an emptyDir
                self.state.update(resumed_from_step=0)
            return None
        if not newest.exists():
            raise UserError(
                f"checkpoint.storage: rank 0 resumes from {newest.name}, which this rank does not see; several nodes"
                " need storage that they share"
            )
        step = int(newest.name.rpartition("-")[2])
        log.info("resuming from %s", newest)
        self.state.update(resumed_from_step=step, checkpoints=self._reported(), progress=Progress(step=step))
        return newest

    def _newest(self) -> Path | None:
        saved, passed_over = self.store.newest()
        for reason in passed_over:
            log.warning("not resumed from: %s", reason)
        if passed_over and not saved:
            raise UserError(
                f"checkpoint.storage: no checkpoint can be resumed from ({'; '.join(passed_over)}); to start anew,"
                f" remove {self.store.checkpoints.relative_to(self.paths.storage)} from the volume"
            )
        return saved.path if saved else None

    def _evaluate(self, step: int) -> None:
        known = self.state.state.evaluations
        if self.evaluator is None or any(entry.step == step for entry in known):
            return
        result = self.evaluator(step)
        self.state.update(evaluations=first_and_newest([*known, result], EVALUATIONS_KEPT))
        log.info("evaluation at step %d: %.3f [%.3f, %.3f]", step, result.mean, result.low, result.high)
        if self.trainer.accelerator.is_main_process:
            try:
                self.store.write(EVALUATIONS, self._evaluations() + result.model_dump_json(by_alias=True) + "\n")
            except OSError as error:  # a full volume does not end the training
                self._cannot_write(f"{EVALUATIONS}: {error}")

    def _evaluations(self) -> str:
        file = self.directory / EVALUATIONS
        return file.read_text() if file.exists() else ""

    def _recall_evaluations(self) -> None:
        """Those of earlier attempts up to the step that this one goes on from."""
        entries = [entry for line in ranks.from_first(self._evaluations().splitlines()) if (entry := _evaluation(line))]
        resumed = self.state.state.resumed_from_step or 0
        known = list({e.step: e for e in entries if e.step <= resumed}.values())
        self.state.update(evaluations=first_and_newest(known, EVALUATIONS_KEPT))

    def _saved(self, step: int, failure: OSError | None, seconds: float) -> None:
        leaving = {LEAVING: round(self.signal.longest_seconds + seconds, 3)}
        self.state.update(throughput=self.state.state.throughput | leaving)
        self.signal.count_from_now()
        self._draw()
        if failure:
            self._cannot_write(f"step {step}: {failure}")
            return
        try:
            self.state.update(checkpoints=self._reported(), checkpoint_error="")
        except OSError as error:
            self._cannot_write(f"step {step}: saved, but the volume cannot be read: {error}")

    def _draw(self) -> None:
        """The picture of memory by phase, of the first rank."""
        if self.state.state.rank or not self.phases.history.rows:
            return
        title = f"{self.attempt.name}, attempt {self.attempt.attempt}"
        try:
            replace_text(self.logs / "memory.svg", picture(title, self.phases.history, self.phases.device_limit))
        except OSError as error:
            self._cannot_write(f"memory.svg: {error}")

    def _cannot_write(self, message: str) -> None:
        log.error("not written: %s", message)
        self.state.update(checkpoint_error=message)

    def _reported(self) -> list[Checkpoint]:
        complete, _ = self.store.scan()
        return [Checkpoint(step=c.step, uri=self._uri(c.path), time=c.time, size_bytes=c.size_bytes) for c in complete]

    def _uri(self, path: Path) -> str:
        return f"{self.attempt.storage_uri.rstrip('/')}/{path.relative_to(self.paths.storage)}"

    def _export(self) -> None:
        with self.phases(Phase.CHECKPOINT):
            model = self.trainer.accelerator.unwrap_model(self.trainer.model)
            if self.trainer.accelerator.is_main_process:
                self.store.discard()
                export_model(model, self.tokenizer, self.store.incoming / MODEL)
                self.store.commit_model(self.trainer.state.global_step)
            else:
                take_part(model)
            ranks.barrier()
        self.state.update(model_uri=self._uri(self.directory / MODEL))


def read_plan(path: Path) -> Plan | None:
    """The memory plan that the launcher left for the ranks; None where there is none, as on CPUs."""
    return Plan.model_validate_json(path.read_text()) if path.exists() else None


def _evaluation(line: str) -> Evaluation | None:
    """A line of the evaluations' file; None for one that was cut off."""
    try:
        return Evaluation.model_validate_json(line)
    except ValidationError:
        return None


def load_tokenizer(path: Path, spec: JobSpec) -> Any:
    """The policy's tokenizer, padding and truncating as TRL wants it; its pad token set to one that exists."""
    assert spec.model is not None
    tokenizer = AutoTokenizer.from_pretrained(
        path, trust_remote_code=spec.model.trust_remote_code, padding_side="left", truncation_side="left"
    )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer
