"""A launcher that does not answer is given up; an operator that could not ask gives up nobody."""

from typing import Any

import pytest
from tests.unit.operator.cluster import Life, pod, report, spec

from colocated_operator.observe import Pulled
from colocated_runtime.contract.report import Stage

WATCHDOG = {"stallTimeoutSeconds": 100, "startTimeoutSeconds": 300}
TRAINS = report(3)
STARTS = report(0, stage=Stage.STARTING)
SLEEPS = {"podTemplate": {"spec": {"containers": [{"name": "colocated", "command": ["sleep", "inf"]}]}}}


def life_of(known: Pulled, **changes: Any) -> Life:
    life = Life(spec(watchdog=WATCHDOG, restart={"maxRestarts": 1, "backoffSeconds": 0}, **changes))
    life.passes(2)
    life.reports["pod-1-0"] = known
    return life


def silent(life: Life, seconds: int, every: int = 5, *, reached: bool = True, number: int = 1) -> None:
    for _ in range(seconds // every):
        known = life.reports.get(f"pod-{number}-0", Pulled(None))
        life.reports[f"pod-{number}-0"] = known.unanswered("no answer within 3 s", life.now, reached=reached)
        life.one_pass(every)


@pytest.mark.parametrize(
    ("known", "seconds", "field"),
    [
        (Pulled(TRAINS), 100, "spec.watchdog.stallTimeoutSeconds (100 s)"),
        (Pulled(STARTS), 300, "spec.watchdog.startTimeoutSeconds (300 s)"),
        (Pulled(None), 300, "spec.watchdog.startTimeoutSeconds (300 s)"),
    ],
)
def test_silent_launcher_is_given_up_a_minute_after_its_own_watchdog(known: Pulled, seconds: int, field: str) -> None:
    life = life_of(known)
    silent(life, seconds + 60)
    assert "restarts" not in life.status
    silent(life, 15)
    (told,) = life.status["restarts"]
    assert (told["outcome"], told["counted"], life.status["restartCount"]) == ("Hung", True, 1)
    assert told["message"] == (
        f"pod job-abcde-1-0-x runs, but its launcher has not answered for {seconds + 65} s, longer than {field}:"
        " no answer within 3 s; where it only was slow, raise that"
    )
    assert life.children[1].gone


def test_launcher_that_is_silent_again_uses_up_the_restarts() -> None:
    life = life_of(Pulled(TRAINS))
    silent(life, 200)
    life.put_pod(pod(1, gone=True))
    life.passes(3)
    silent(life, 400, number=2)
    assert life.status["phase"] == "Failed"
    assert life.condition("Failed")["reason"] == "Hung"
    assert "maxRestarts: 1" in life.condition("Failed")["message"]


def test_command_that_replaces_the_launcher_is_named() -> None:
    life = life_of(Pulled(None), runtime=SLEEPS)
    silent(life, 400)
    assert life.status["restarts"][0]["message"].endswith(
        "; spec.runtime.podTemplate sets command of the container colocated, which replaces the launcher: take it out,"
        " and give your program as spec.runtime.command"
    )


def test_time_without_an_operator_is_no_silence() -> None:
    life = life_of(Pulled(TRAINS))
    for _ in range(3):
        silent(life, 30)
        life.one_pass(10_000)
    assert "restarts" not in life.status
    life.new_operator()
    silent(life, 150)
    assert "restarts" not in life.status, "a new one asks for as long itself"


def test_rare_asks_are_no_long_silence() -> None:
    life = life_of(Pulled(TRAINS))
    silent(life, 1000, every=100)
    assert "restarts" not in life.status


def test_network_that_is_away_is_no_silence_of_the_launcher() -> None:
    life = life_of(Pulled(TRAINS))
    silent(life, 2_000, reached=False)
    assert life.status["phase"] == "Running"
    assert life.condition("ReportReachable")["status"] == "False"


def test_stopped_launcher_whose_queue_is_full_is_given_up() -> None:
    life = life_of(Pulled(TRAINS))
    silent(life, 105)
    silent(life, 100, reached=False)
    assert life.status["restarts"][0]["outcome"] == "Hung"


def test_launcher_that_answers_again_begins_anew() -> None:
    life = life_of(Pulled(TRAINS))
    silent(life, 155)
    life.runs(step=4)
    silent(life, 155)
    assert "restarts" not in life.status


@pytest.mark.parametrize("changes", [{"gone": True}, {"phase": "Pending"}, {"exit_code": 0, "others": ("proxy",)}])
def test_pod_that_does_not_run_is_not_asked_for_its_silence(changes: dict[str, Any]) -> None:
    life = life_of(Pulled(TRAINS))
    silent(life, 155)
    life.put_pod(pod(1, **changes))
    silent(life, 10)
    assert not [entry for entry in life.status.get("restarts", []) if entry["outcome"] == "Hung"]


def test_pod_that_ends_is_not_given_up_before_its_time() -> None:
    life = life_of(Pulled(TRAINS))
    silent(life, 155)
    life.put_pod(pod(1, deadline=life.now.replace(year=2027)))
    silent(life, 60)
    assert "restarts" not in life.status


@pytest.mark.parametrize("containers", ["none", [3], {"name": "colocated"}])
def test_template_that_has_lost_its_form_meanwhile_stops_no_pass(containers: object) -> None:
    life = life_of(Pulled(TRAINS))
    life.spec = spec(watchdog=WATCHDOG, runtime={"podTemplate": {"spec": {"containers": containers}}})
    silent(life, 170)
    assert life.status["restarts"][0]["outcome"] == "Hung"
