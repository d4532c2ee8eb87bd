"""A wait is told once when it begins: by the status, and by one Event."""

import pytest
from tests.unit.operator.cluster import Life, pod, spec

from colocated_operator.observe import Obstacle
from colocated_operator.status.events import Event, events
from colocated_runtime.contract.status import JobStatus

MISSING = Obstacle("Waiting", "ConfigMapMissing", "spec.rewards[0].configMap: there is no ConfigMap 'x'", 1)


def told(life: Life) -> list[Event]:
    return events(JobStatus.model_validate(life.status), life.now)


def waits(life: Life, seconds: int) -> set[Event]:
    """Every Event that a pass would post in so many seconds."""
    found: set[Event] = set()
    for _ in range(seconds):
        life.one_pass()
        found.update(told(life))
    return found


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"unschedulable": "0/1 nodes are available: 1 Insufficient cpu."}, "Unschedulable"),
        ({"waiting_reason": "ErrImagePull", "waiting_message": "not found"}, "ImageError"),
        ({"waiting_reason": "CreateContainerConfigError", "waiting_message": 'secret "x" not found'}, "ConfigError"),
    ],
)
def test_pod_that_begins_to_wait_is_one_event(changes: dict[str, str], reason: str) -> None:
    life = Life()
    life.one_pass()
    life.put_pod(pod(1, ip="", phase="Pending", **changes))
    (event,) = waits(life, 30)
    assert (event.type, event.reason, event.message) == ("Warning", reason, life.condition("Reconciling")["message"])
    assert event.name.startswith(reason.lower())
    life.new_operator()
    assert waits(life, 30) == {event}
    life.put_pod(pod(1))
    life.runs(step=1)
    assert "waiting" not in life.status
    assert not [event for event in told(life) if event.reason == reason]


def test_missing_object_is_one_event_also_after_a_restart_of_the_operator() -> None:
    life = Life()
    life.obstacle = MISSING
    (event,) = waits(life, 30)
    assert (event.reason, event.message) == ("ConfigMapMissing", MISSING.message)
    before, life.obstacle = life.status, None
    assert life.one_pass().actions, "a new operator tries again"
    assert life.status == before, "and repeats what was told until it has"
    life.children.clear()
    life.pods.clear()
    life.obstacle = MISSING
    assert waits(life, 30) == {event}


def test_wait_that_begins_late_is_news_although_the_job_is_old() -> None:
    life = Life()
    life.obstacle = MISSING
    life.passes(40, seconds=60)
    assert told(life) == [], "an hour-old wait is no news"
    life.obstacle = Obstacle("Waiting", "CreateForbidden", "exceeded quota", 1)
    life.one_pass()
    assert [event.reason for event in told(life)] == ["CreateForbidden"]


def test_pods_that_come_soon_are_no_event() -> None:
    life = Life(spec(nodes=2, checkpoint={"storage": {"claim": "c"}}))
    life.one_pass()
    life.pods.clear()
    assert waits(life, 9) == set()
    assert life.condition("Running")["reason"] == "PodsPending"
    (event,) = waits(life, 20)
    assert event.reason == "PodsPending"


def test_queued_job_is_a_normal_event() -> None:
    life = Life()
    life.one_pass()
    life.change_child(1, suspended=True)
    life.pods.clear()
    (event,) = waits(life, 30)
    assert (event.type, event.reason) == ("Normal", "Queued")


def test_suspended_and_finished_jobs_wait_for_nothing() -> None:
    life = Life()
    life.obstacle = MISSING
    life.passes(2)
    life.spec = spec(suspend=True)
    life.one_pass()
    assert "waiting" not in life.status
    refused = Life()
    refused.obstacle = MISSING
    refused.passes(2)
    refused.obstacle = Obstacle("Invalid", "JobRefused", "unknown field", 1)
    refused.passes(2)
    assert "waiting" not in refused.status
