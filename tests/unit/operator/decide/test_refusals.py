"""What cannot start, and what is waited for."""

import pytest
from tests.unit.operator.cluster import Life, pod, spec

from colocated_operator.observe import Obstacle


def test_refused_spec_makes_no_pod_and_a_mended_one_goes_on() -> None:
    life = Life(spec(trainer={"learning_rat": 1e-6}))
    life.passes(3)
    assert life.status["phase"] == "Failed"
    assert life.condition("Stalled")["status"] == "True"
    assert "learning_rate" in life.condition("Stalled")["message"]
    assert not life.children
    life.spec, life.generation = spec(), 2
    life.passes(2)
    assert life.status["phase"] == "Starting"
    assert life.condition("Stalled")["status"] == "False"
    assert life.condition("Failed")["status"] == "False"
    assert "completionTime" not in life.status


def test_refused_job_object_fails_and_says_why() -> None:
    life = Life()
    life.obstacle = Obstacle("Invalid", "JobRefused", "spec.containers[0].imagee: unknown field", 1)
    life.passes(2)
    assert life.status["phase"] == "Failed"
    assert "imagee" in life.condition("Stalled")["message"]
    life.generation, life.obstacle = 2, None
    life.passes(2)
    assert life.status["phase"] == "Starting"


def test_missing_object_is_waited_for() -> None:
    life = Life()
    life.obstacle = Obstacle("Waiting", "ConfigMapMissing", "there is no ConfigMap 'x'", 1)
    life.passes(2)
    assert life.status["phase"] == "Pending"
    assert life.condition("Reconciling")["reason"] == "ConfigMapMissing"
    life.obstacle = None
    life.passes(2)
    assert life.status["phase"] == "Starting"


@pytest.mark.parametrize(
    ("changes", "reason", "stalled"),
    [
        ({"phase": "Pending", "unschedulable": "0/1 nodes: Insufficient nvidia.com/gpu"}, "Unschedulable", "False"),
        ({"phase": "Pending", "waiting_reason": "ImagePullBackOff"}, "ImageError", "False"),
        ({"phase": "Pending", "waiting_reason": "InvalidImageName"}, "ImageError", "True"),
        ({"phase": "Pending", "waiting_reason": "CreateContainerConfigError"}, "ConfigError", "False"),
        ({"phase": "Pending", "waiting_reason": "ErrImagePull", "waiting_container": "fetch"}, "ImageError", "False"),
        (
            {"phase": "Pending", "waiting_reason": "CrashLoopBackOff", "waiting_container": "helper"},
            "CrashLoopBackOff",
            "False",
        ),
    ],
)
def test_waiting_pod_says_why(changes: dict[str, str], reason: str, stalled: str) -> None:
    life = Life()
    life.one_pass()
    life.put_pod(pod(1, ip="", **changes))
    life.passes(2)
    assert life.status["phase"] == "Starting"
    assert life.condition("Running")["reason"] == reason
    assert life.condition("Stalled")["status"] == stalled


def test_another_container_that_cannot_start_is_named_and_not_sought_in_runtime_image() -> None:
    life = Life()
    life.one_pass()
    changes = {"waiting_container": "fetch", "waiting_reason": "ErrImagePull", "waiting_message": "not found"}
    life.put_pod(pod(1, ip="", phase="Pending", **changes))
    life.one_pass()
    assert life.condition("Running")["message"] == (
        "pod job-abcde-1-0-x, container fetch: ErrImagePull: not found; see spec.runtime.podTemplate;"
        " what is edited holds for the next attempt: suspend and resume"
    )


@pytest.mark.parametrize(
    ("changes", "reason", "words"),
    [
        (
            {"waiting_reason": "ContainerCreating"},
            "ContainerCreating",
            "`kubectl describe pod job-abcde-1-0-x` says why",
        ),
        ({}, "PodsPending", "waits in Pending; `kubectl describe"),
        ({"waiting_reason": "PodInitializing"}, "PodInitializing", "waits in PodInitializing; `kubectl describe"),
        ({"waiting_reason": "PodInitializing", "initializing": "fetch"}, "PodInitializing", "its init container fetch"),
    ],
)
def test_pod_that_does_not_start_on_its_node_is_told_after_half_a_minute(
    changes: dict[str, str], reason: str, words: str
) -> None:
    life = Life()
    life.one_pass()
    life.put_pod(pod(1, ip="", phase="Pending", scheduled=life.now, **changes))
    life.passes(29)
    assert life.condition("Running")["reason"] == "Starting"
    life.passes(2)
    assert life.condition("Running")["reason"] == life.condition("Reconciling")["reason"] == reason
    assert words in life.condition("Running")["message"]
    life.put_pod(pod(1))
    life.runs(step=1)
    assert life.condition("Running")["status"] == "True"
    assert life.condition("Reconciling")["status"] == "False"
