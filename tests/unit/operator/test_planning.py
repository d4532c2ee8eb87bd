"""What the operator does with a memory plan before any pod exists."""

import time
from typing import Any

import pytest
from tests.unit.contract.bad_jobs import GOOD, changed
from tests.unit.operator.cluster import SETTINGS, START, Life, rl_job

from colocated_operator.decide import CreateAttempt, decide
from colocated_operator.desired import objects
from colocated_operator.observe import Observation, Obstacle
from colocated_operator.policies import planning
from colocated_runtime.contract.attempt import Attempt
from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.plan import Plan
from colocated_runtime.contract.report import Report
from colocated_runtime.planner.devices import GIB

PLANNED = changed(GOOD, {"gpusPerNode": 1, "device.memory": "80Gi"})
TOO_LARGE = changed(PLANNED, {"device.memory": "2Gi"})


def plan_of(life: Life) -> Plan:
    return Plan.model_validate(life.status["memory"]["plan"])


def attempt_of(create: CreateAttempt) -> Attempt:
    """As the launcher reads it."""
    return Attempt.model_validate_json(objects.config_map(create.plan)["data"]["attempt.json"])


def test_a_plan_that_fits_is_in_the_status_and_in_the_attempt() -> None:
    life = Life(PLANNED)
    (create,) = life.one_pass().actions
    assert isinstance(create, CreateAttempt)
    assert plan_of(life).fits
    assert attempt_of(create).plan == plan_of(life)


def test_a_job_that_cannot_fit_gets_no_pod_and_a_change_of_its_spec_mends_it() -> None:
    life = Life(TOO_LARGE)
    assert life.one_pass().actions == ()
    assert life.status["phase"] == "Failed"
    assert life.condition("Stalled")["status"] == "True"
    for name in ("Stalled", "Failed"):
        assert life.condition(name)["reason"] == Outcome.BAD_PLAN.value
        assert life.condition(name)["message"] == plan_of(life).refusal != ""
    assert life.passes(3).actions == ()

    life.spec, life.generation = PLANNED, 2
    (create,) = life.one_pass().actions
    assert isinstance(create, CreateAttempt)
    life.one_pass()
    assert life.status["phase"] == "Starting"
    assert life.condition("Stalled")["status"] == life.condition("Failed")["status"] == "False"
    assert plan_of(life).fits


@pytest.mark.parametrize("gpus", [{"gpusPerNode": 4}, {"gpusPerNode": None, "processesPerNode": 4}], ids=["gpu", "cpu"])
def test_what_the_model_cannot_have_gets_no_pod(gpus: dict[str, Any]) -> None:
    life = Life(changed(GOOD, gpus | {"parallelism.tensorParallel": 4}))
    assert life.one_pass().actions == ()
    assert life.status["phase"] == "Failed"
    assert life.condition("Stalled")["reason"] == Outcome.BAD_PLAN.value
    assert life.condition("Stalled")["message"].startswith("spec.parallelism.tensorParallel: 4 does not divide the")


@pytest.mark.parametrize(
    "changes",
    [
        {"gpusPerNode": None, "device": None},
        {"device.memory": None},
        {"model.source": "hf://nobody/knows"},
        {"runtime.command": ["true"]},
    ],
    ids=["cpu", "unknown-device", "unknown-model", "own-program"],
)
def test_where_too_little_is_known_the_job_starts_without_a_plan(changes: dict[str, Any]) -> None:
    life = Life(changed(PLANNED, changes))
    (create,) = life.one_pass().actions
    assert isinstance(create, CreateAttempt)
    assert create.plan.memory is None
    assert "plan" not in life.status.get("memory", {})


def test_a_shape_that_contradicts_itself_is_a_mistake_in_the_spec() -> None:
    shape = {"hidden_size": 100, "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 3,
             "intermediate_size": 10, "vocab_size": 10}  # fmt: skip
    life = Life(changed(PLANNED, {"model.source": "hf://nobody/knows", "model.shape": shape}))
    assert life.one_pass().actions == ()
    assert life.condition("Stalled")["reason"] == "InvalidSpec"
    assert life.condition("Stalled")["message"].startswith("spec.model.shape: hidden_size: 100")


def test_a_mistake_of_the_planner_does_not_stop_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> Plan:
        raise ZeroDivisionError

    monkeypatch.setattr(planning, "make_plan", broken)
    life = Life(PLANNED)
    assert isinstance(life.one_pass().actions[0], CreateAttempt)


def test_one_plan_an_attempt_however_often_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Plan] = []
    original = planning.make_plan

    def counting(*arguments: Any) -> Plan:
        made.append(original(*arguments))
        return made[-1]

    monkeypatch.setattr(planning, "make_plan", counting)
    life = Life(PLANNED)
    life.obstacle = Obstacle("Waiting", "CreateForbidden", "quota", generation=1)
    for _ in range(5):
        (create,) = life.one_pass().actions
        assert isinstance(create, CreateAttempt)
        assert create.plan.memory == made[0]
    assert len(made) == 1
    life.spec, life.generation = changed(PLANNED, {"device.memory": "40Gi"}), 2
    life.one_pass()
    assert len(made) == 2
    assert plan_of(life).device_bytes == 40 * 2**30
    life.obstacle = None
    life.passes(3)
    life.runs(step=1)
    assert len(made) == 3


def test_what_has_run_is_not_stopped_by_a_prediction() -> None:
    life = Life(PLANNED)
    life.passes(2)
    life.runs(step=3)
    life.spec = TOO_LARGE  # as a planner of another version may see it
    life.ends(1, Outcome.CRASH, step=3)
    life.passes(15)
    assert life.status["attempt"] == 2
    assert life.status["phase"] in ("Starting", "Running")
    assert plan_of(life).fits, "the plan of the attempt before stays"


def test_after_the_device_was_full_the_next_plan_takes_less() -> None:
    """Each time, and until no plan is left that fits."""
    life = Life(changed(PLANNED, {"device.memory": "8Gi", "restart": {"maxRestarts": 100, "backoffSeconds": 0}}))
    plans, headroom = [], []
    for attempt in range(1, 20):
        made = [action for action in life.one_pass().actions if isinstance(action, CreateAttempt)]
        headroom += [attempt_of(create).spec.memory.headroom for create in made]
        if attempt not in life.children:
            break
        plans.append(plan_of(life))
        life.one_pass()
        life.ends(attempt, Outcome.DEVICE_OUT_OF_MEMORY, step=3)
        life.one_pass()
    assert len(plans) > 2
    assert all(plan.fits for plan in plans)
    assert headroom[:3] == [0.05, 0.1, 0.15]
    assert plans[0].budget_bytes > plans[1].budget_bytes > plans[2].budget_bytes
    failed = life.condition("Failed")
    assert failed["reason"] == "DeviceOutOfMemory"
    assert failed["message"].startswith("DeviceOutOfMemory; and no smaller plan is left: ")


TIGHT = changed(
    PLANNED,
    {
        "model.source": "hf://Qwen/Qwen2.5-1.5B-Instruct",
        "device.memory": "17Gi",  # too little without the optimizer's states on the host
        "resources": {"limits": {"memory": "20Gi"}},
        "restart": {"maxRestarts": 100, "backoffSeconds": 0},
    },
)


def test_after_the_pod_was_killed_at_its_limit_the_next_plan_takes_less_of_the_host() -> None:
    """Each time, and until no plan is left that fits: then the limit that is needed is named."""
    life, reserves = Life(TIGHT), []
    for attempt in range(1, 9):
        made = [action for action in life.one_pass().actions if isinstance(action, CreateAttempt)]
        reserves += [attempt_of(create).host_reserve for create in made]
        if attempt not in life.children:
            break
        assert plan_of(life).fits
        life.one_pass()
        life.ends(attempt, Outcome.HOST_OUT_OF_MEMORY, step=3)
        life.one_pass()
    assert reserves == [0, 2 * GIB, 4 * GIB]
    failed = life.condition("Failed")
    assert failed["reason"] == "HostOutOfMemory"
    assert failed["message"].startswith("HostOutOfMemory; and no smaller plan is left: Start: ")
    assert "hostReserve 6.00 GiB" in failed["message"]
    assert failed["message"].endswith("Fits with resources.limits.memory: 22Gi.")


def test_no_room_is_kept_on_the_host_where_nothing_can_be_planned_or_the_user_does() -> None:
    for changes in ({"memory": {"policy": "Manual"}}, {"resources": None}):
        life = Life(changed(TIGHT, {"device.memory": "80Gi"} | changes))
        life.passes(2)
        life.ends(1, Outcome.HOST_OUT_OF_MEMORY)
        made = [action for _ in range(3) for action in life.one_pass().actions if isinstance(action, CreateAttempt)]
        assert [attempt_of(create).host_reserve for create in made] == [0]


def test_the_users_own_settings_stay_after_the_device_was_full() -> None:
    life = Life(changed(PLANNED, {"memory": {"policy": "Manual"}, "restart.backoffSeconds": 0}))
    life.passes(2)
    life.ends(1, Outcome.DEVICE_OUT_OF_MEMORY)
    made = [action for _ in range(3) for action in life.one_pass().actions if isinstance(action, CreateAttempt)]
    assert [attempt_of(create).spec.memory.headroom for create in made] == [0.05]


def test_a_refusal_of_the_launcher_ends_the_job() -> None:
    life = Life(PLANNED)
    life.passes(2)
    life.ends(1, Outcome.BAD_PLAN)
    life.passes(2)
    assert life.condition("Failed")["reason"] == "BadPlan"
    assert list(life.children) == [1]


def test_the_plan_of_the_launcher_takes_the_place_of_the_operators() -> None:
    life = Life(PLANNED)
    life.passes(2)
    seen = plan_of(life).model_copy(update={"device_bytes": 79 * 2**30})
    life.runs(step=1, plan=seen)
    assert plan_of(life).device_bytes == 79 * 2**30


def test_the_largest_plan_that_parses_becomes_a_status() -> None:
    life = Life(PLANNED)
    life.passes(2)
    made = plan_of(life)
    item = {"name": "n" * 63, "bytes": 2**53 - 1, "formula": "f" * 1024}
    phases = [{"phase": "Train", "device": [item] * 32, "host": [item] * 32}] * 8
    most = made.model_dump(by_alias=True) | {"phases": phases, "why": "w" * 1024, "advice": ["a" * 1024] * 8}
    life.runs(step=3, plan=Plan.model_validate(most))
    assert Report.model_validate(life.reports["pod-1-0"].report).plan == plan_of(life)


def test_a_thousand_jobs_are_planned_in_seconds() -> None:
    """Some milliseconds of this thread a job; the bound only notices another order of magnitude."""
    specs = [changed(PLANNED, {"trainer.max_completion_length": 256 + number}) for number in range(1000)]
    began = time.thread_time()
    decisions = [decide(Observation(rl_job(spec)), START, SETTINGS) for spec in specs]
    seconds = time.thread_time() - began
    assert all(decision.status.memory.plan for decision in decisions)
    assert seconds < 30, f"{seconds:.1f} s"


def test_planned_says_what_the_planner_says() -> None:
    made = planning.planned(JobSpec.model_validate(PLANNED))
    assert made
    assert made.device_bytes == 80 * 2**30
