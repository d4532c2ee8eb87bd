"""What the reports of the pods make of the status."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.unit.operator.cluster import Life, pod, report, spec

from colocated_operator.observe import Obstacle, Pulled
from colocated_operator.status.conditions import stamp
from colocated_operator.status.events import events
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.report import Phase, Pressure, Progress, Stage, Weights
from colocated_runtime.contract.status import JobStatus


def test_memory_pressure_comes_and_goes() -> None:
    life = Life()
    life.passes(2)
    event = Pressure(sequence=1, time=life.now.timestamp(), kind="Host", message="9.2 of 10 GiB")
    life.runs(step=1, pressure=[event])
    assert life.condition("MemoryPressure") | {"lastTransitionTime": 0, "observedGeneration": 0} == {
        "type": "MemoryPressure", "status": "True", "reason": "HostMemory", "message": "9.2 of 10 GiB",
        "lastTransitionTime": 0, "observedGeneration": 0,
    }  # fmt: skip
    assert life.status["memory"]["pressureEvents"] == 1
    life.one_pass(seconds=300)
    assert life.condition("MemoryPressure")["status"] == "False"


def test_a_sleep_that_frees_too_little_is_an_event_of_its_own() -> None:
    life = Life()
    life.passes(2)
    message = "54.00 GiB back, 64.00 were planned"
    made = life.runs(step=1, pressure=[Pressure(sequence=1, time=life.now.timestamp(), kind="Sleep", message=message)])
    assert life.condition("MemoryPressure")["reason"] == "SleepIneffective"
    assert [event.message for event in events(made.status, life.now) if event.reason == "SleepIneffective"] == [message]


def test_stale_weights_are_a_condition() -> None:
    life = Life()
    life.passes(2)
    life.runs(step=2, weights=Weights(in_sync=False, step=2, message="differ by 0.4 nats"))
    assert life.condition("WeightsInSync")["status"] == "False"
    assert "0.4 nats" in life.condition("WeightsInSync")["message"]


def test_silent_launcher_is_a_condition_and_no_hang() -> None:
    life = Life()
    life.passes(2)
    life.runs(step=2)
    life.reports["pod-1-0"] = Pulled(report(2), "no answer within 3 s", life.now)
    life.passes(5)
    assert life.condition("ReportReachable")["status"] == "True"
    life.passes(15)
    assert life.condition("ReportReachable")["status"] == "False"
    assert life.status["phase"] == "Running"


@pytest.mark.parametrize("stage", [Stage.STOPPING, Stage.FINISHED])
def test_an_attempt_that_ends_before_its_first_step_never_trained(stage: Stage) -> None:
    life = Life()
    life.passes(2)
    life.runs(step=0, stage=stage)
    assert life.status["phase"] == "Starting"
    life.runs(step=0, stage=Stage.RUNNING)
    life.runs(step=0, stage=stage)
    assert life.status["phase"] == "Running", "it was seen to train"
    short = Life()
    short.passes(2)
    short.runs(step=3, stage=stage)
    assert short.status["phase"] == "Running"


def test_transition_time_moves_only_when_the_status_flips() -> None:
    life = Life()
    life.passes(2)
    life.runs(step=1)
    first = life.condition("Running")["lastTransitionTime"]
    life.runs(step=2)
    life.passes(5)
    assert life.condition("Running")["lastTransitionTime"] == first


def test_when_the_pods_last_reported_is_no_news_by_itself_but_once_a_minute() -> None:
    life = Life()
    life.passes(2)

    def hear(step: int, times: int = 1) -> str:
        for _ in range(times):
            life.runs(step=step, updated=life.now.timestamp())
        return str(life.status["observedAt"])

    first = hear(step=1)
    assert first == stamp(life.now - timedelta(seconds=1))
    before = life.status
    assert hear(step=1, times=59) == first
    assert life.status == before
    assert hear(step=1) == stamp(life.now - timedelta(seconds=1))
    assert hear(step=2) == stamp(life.now - timedelta(seconds=1))


def test_silent_pods_leave_the_time_of_their_last_report() -> None:
    life = Life()
    life.passes(2)
    life.runs(step=2, updated=life.now.timestamp())
    told = life.status["observedAt"]
    life.reports["pod-1-0"] = replace(life.reports["pod-1-0"], error="no answer within 3 s", since=life.now)
    life.passes(200)
    assert life.status["observedAt"] == told


def test_clock_of_a_pod_that_is_ahead_is_not_believed() -> None:
    life = Life()
    life.passes(2)
    life.runs(step=2, updated=3.9e9)
    assert life.status["observedAt"] == stamp(life.now)


def pressed(life: Life) -> None:
    """Its attempt runs, near the limit of its memory, with four minutes to go."""
    life.passes(2)
    event = Pressure(sequence=1, time=life.now.timestamp(), kind="Host", message="95%")
    life.runs(step=3, pressure=[event], phase=Phase.ROLLOUT, progress=Progress(step=3, total_steps=10, eta_seconds=240))
    assert life.condition("MemoryPressure")["status"] == life.condition("ReportReachable")["status"] == "True"
    assert (life.status["activity"], life.status["progress"]["etaSeconds"]) == ("Rollout", 240)


def suspended(life: Life) -> None:
    life.suspend()


def restarting(life: Life) -> None:
    life.ends(1, Outcome.CRASH, 3)
    life.one_pass()


def failed(life: Life) -> None:
    life.ends(1, Outcome.USER_ERROR, 3)
    life.one_pass()


def queued_again(life: Life) -> None:
    life.change_child(1, suspended=True)
    life.put_pod(pod(1, gone=True))
    life.one_pass()


def refused_when_resumed(life: Life) -> None:
    life.suspend()
    life.spec, life.generation = spec(trainer={"learning_rat": 1}), 2
    life.one_pass()


@pytest.mark.parametrize("act", [suspended, restarting, failed, queued_again, refused_when_resumed])
def test_what_is_said_of_running_pods_ends_with_them(act: Callable[[Life], None]) -> None:
    life = Life()
    pressed(life)
    act(life)
    for name in ("MemoryPressure", "ReportReachable"):
        assert (life.condition(name)["status"], life.condition(name)["reason"]) == ("False", "NotRunning"), name
    told = [event.name for event in events(JobStatus.model_validate(life.status), life.now)]
    assert not [name for name in told if name.startswith("reportreachable")]
    assert "activity" not in life.status
    assert "etaSeconds" not in life.status["progress"]


def test_pods_that_never_answer_a_new_operator_are_unreachable_from_then_on() -> None:
    life = Life()
    pressed(life)
    life.new_operator()
    life.reports["pod-1-0"] = Pulled(None, "no answer within 3 s", life.now)
    life.one_pass()
    assert life.condition("MemoryPressure")["status"] == "True"
    life.passes(16)
    assert life.condition("MemoryPressure")["status"] == "Unknown"
    assert life.condition("ReportReachable")["reason"] == "Unreachable"


def test_the_time_of_an_unreachable_report_is_that_of_the_pod_and_not_of_the_wait_before_it() -> None:
    life = Life()
    life.one_pass()
    life.put_pod(pod(1, phase="Pending", ip=""))
    life.passes(3, seconds=3600)
    assert life.condition("ReportReachable")["reason"] == "NotRunning"
    life.put_pod(pod(1))
    life.reports["pod-1-0"] = Pulled(None, "no answer within 3 s", life.now)
    life.passes(20)
    (event,) = [e for e in events(JobStatus.model_validate(life.status), life.now) if "Reachable" in e.reason]
    assert event.reason == "ReportReachableUnreachable"


def test_suspended_job_that_is_mended_after_a_refusal_has_not_been_preempted() -> None:
    life = Life()
    pressed(life)
    refused_when_resumed(life)
    assert life.condition("Suspended")["status"] == "False"
    life.spec, life.generation = spec(), 3
    life.passes(3)
    assert life.status["attempt"] == 2
    assert "restarts" not in life.status


def test_obstacle_of_an_older_spec_is_not_told_of_the_new_one() -> None:
    life = Life()
    life.obstacle = Obstacle("Waiting", "ConfigMapMissing", "there is no ConfigMap 'x'", 1)
    life.passes(2)
    assert life.condition("Reconciling")["reason"] == "ConfigMapMissing"
    life.generation = 2
    life.one_pass()
    assert life.condition("Reconciling")["reason"] == "Creating"
