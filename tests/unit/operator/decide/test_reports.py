"""What the reports of the pods make of the status."""

from dataclasses import replace
from datetime import timedelta

from tests.unit.operator.cluster import Life, report

from colocated_operator.observe import Pulled
from colocated_operator.status.conditions import stamp
from colocated_operator.status.events import events
from colocated_runtime.contract.report import Pressure, Weights


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
