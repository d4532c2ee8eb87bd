"""Single faults at every point of a job's life, on the simulated cluster; `test_model` combines them."""

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from tests.unit.operator.cluster import Life, last_words, report
from tests.unit.operator.cluster import pod as slim_pod
from tests.unit.operator.simulated import Cluster, Fault, Killed, Loop, Operator

from colocated_operator.kube import KubeError
from colocated_operator.observe import Pulled
from colocated_runtime.contract.outcome import Outcome

SPEC = {
    "runtime": {"command": ["stub"]},
    "checkpoint": {"storage": {"volumeClaimTemplate": {"storage": "1Gi"}}},
    "restart": {"maxRestarts": 1, "backoffSeconds": 0},
}
FAULTS: dict[str, Callable[[Cluster, int], Fault]] = {
    "killed before": lambda _, call: Fault(call, before=Killed()),
    "killed after": lambda _, call: Fault(call, after=Killed()),
    "answer lost": lambda _, call: Fault(call, after=KubeError(0, "no answer")),
    "somebody else wrote": lambda cluster, call: Fault(call, meanwhile=cluster.touch),
    "too many requests": lambda _, call: Fault(call, before=KubeError(429, "slow down")),
}


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


class Script:
    """A job that crashes, is suspended, resumed and completes; the fault befalls one call of one pass."""

    def __init__(self, loop: Loop) -> None:
        self.loop, self.cluster = loop, Cluster()
        self.cluster.apply(SPEC)
        self.operator = Operator(self.cluster, loop)
        self.calls: list[int] = []
        """Of each pass."""

    def run(self, at: int = -1, fault: Fault | None = None) -> None:
        for event in (None, self.start, self.crash, None, self.start, self.suspend, self.end, self.resume, self.start,
                      self.complete):  # fmt: skip
            if event:
                event()
            for _ in range(2):
                self.one_pass(fault if len(self.calls) == at else None)

    def one_pass(self, fault: Fault | None) -> None:
        self.cluster.now += timedelta(seconds=4)
        self.loop.seconds += 4
        self.operator.deliver_all()
        try:
            self.operator.one_pass(fault)
        except KubeError:
            pass
        except Killed:
            self.operator.stop()
            self.operator = Operator(self.cluster, self.loop)
        self.calls.append(self.operator.client.calls)

    def start(self) -> None:
        self.cluster.control()
        for body in self.cluster.of_kind("Pod"):
            self.cluster.start(body)
            self.cluster.work(body)

    def crash(self) -> None:
        self._exit(Outcome.CRASH)

    def complete(self) -> None:
        self._exit(Outcome.COMPLETE)

    def _exit(self, outcome: Outcome) -> None:
        for body in self.cluster.of_kind("Pod"):
            self.cluster.exit(body, outcome)
        self.cluster.control()

    def suspend(self) -> None:
        self.cluster.apply(SPEC | {"suspend": True})

    def end(self) -> None:
        for body in self.cluster.of_kind("Pod"):
            self.cluster.end(body)

    def resume(self) -> None:
        self.cluster.apply(SPEC)


def points() -> list[tuple[int, int]]:
    """Every call of every pass of an undisturbed life."""
    loop = Loop()
    script = Script(loop)
    script.run()
    loop.close()
    return [(number, call) for number, calls in enumerate(script.calls) for call in range(1, calls + 1)]


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_at_any_call_changes_nothing_in_the_end(loop: Loop, fault: str) -> None:
    found = points()
    assert len(found) > 25
    for number, call in found:
        script = Script(loop)
        script.run(number, FAULTS[fault](script.cluster, call))
        where = f"pass {number}, call {call}"
        status, made = script.cluster.job["status"], script.cluster.made
        jobs = {name: count for name, count in made.items() if name.startswith("Job ")}
        assert list(jobs.values()) == [1, 1, 1], where
        assert (status["phase"], status["attempt"], status["restartCount"]) == ("Complete", 3, 1), where
        assert [(entry["attempt"], entry["outcome"]) for entry in status["restarts"]] == [(1, "Crash")], where
        assert not script.cluster.overlaps, where
        told = [event["reason"] for event in script.cluster.events]
        assert {reason: told.count(reason) for reason in ("Running", "Crash", "Suspended", "Complete")} == {
            "Running": 3, "Crash": 1, "Suspended": 1, "Complete": 1,
        }, where  # fmt: skip


def test_job_that_is_deleted_before_its_attempt_is_written_keeps_its_number(loop: Loop) -> None:
    """A new operator cannot know of an attempt whose Job is gone and that no status names."""
    script = Script(loop)
    script.one_pass(None)
    assert "attempt" not in script.cluster.job["status"] or script.cluster.job["status"]["attempt"] == 0
    script.cluster.apply(SPEC | {"suspend": True})
    for call in range(1, 6):
        script.one_pass(Fault(call, after=Killed()))
    script.cluster.apply(SPEC)
    for _ in range(3):
        script.one_pass(None)
    assert script.cluster.made["Job " + next(iter(script.cluster.of_kind("Job")))["metadata"]["name"]] == 1
    assert script.cluster.job["status"]["attempt"] == 2


def test_operator_whose_watches_are_behind_makes_no_attempt_a_second_time(loop: Loop) -> None:
    cluster = Cluster()
    cluster.apply(SPEC)
    behind, ahead = Operator(cluster, loop), Operator(cluster, loop)
    for _ in range(2):
        ahead.one_pass()
    assert cluster.job["status"]["attempt"] == 1
    (name,) = [job["metadata"]["name"] for job in cluster.of_kind("Job")]
    cluster.delete("Job", name)
    with pytest.raises(KubeError, match="behind"):
        behind.one_pass()
    assert cluster.made[f"Job {name}"] == 1
    behind.one_pass()
    assert [entry["outcome"] for entry in cluster.job["status"]["restarts"]] == ["Preempted"]


def test_strangers_job_of_our_name_is_an_obstacle_and_no_crash(loop: Loop) -> None:
    script = Script(loop)
    script.cluster.put({
        "kind": "Job", "metadata": {"name": "job-coloc-1", "namespace": "ns", "labels": {}},
        "spec": {"completions": 0}, "status": {"conditions": []},
    })  # fmt: skip
    script.operator.inbox["Job"].clear()
    script.operator.stop()
    for _ in range(2):
        script.one_pass(None)
    reconciling = next(c for c in script.cluster.job["status"]["conditions"] if c["type"] == "Reconciling")
    assert reconciling["reason"] == "NameTaken"


def test_clock_set_back_by_an_hour_does_not_hold_the_next_attempt_back() -> None:
    life = Life(SPEC | {"restart": {"maxRestarts": 1, "backoffSeconds": 10}})
    life.passes(2)
    life.ends(1, Outcome.CRASH)
    life.one_pass()
    life.now -= timedelta(hours=1)
    life.passes(2)
    assert 2 in life.children


@pytest.mark.parametrize("hours", [-24, 24])
def test_clock_jumps_neither_end_nor_restart_a_running_job(hours: int) -> None:
    life = Life()
    life.passes(2)
    life.runs(step=2)
    life.now += timedelta(hours=hours)
    life.passes(3)
    life.now -= timedelta(hours=hours)
    life.passes(3)
    assert life.status["phase"] == "Running"
    assert list(life.children) == [1]


def test_deletes_that_no_watch_told_are_found_once_the_pod_is_silent(loop: Loop) -> None:
    """kopf never tells of what is deleted while it lists again."""
    script = Script(loop)
    script.one_pass(None)
    script.start()
    script.one_pass(None)
    (job,) = script.cluster.of_kind("Job")
    script.cluster.delete("Job", job["metadata"]["name"])
    script.end()
    script.operator.list_again("Job")
    script.operator.list_again("Pod")
    for _ in range(6):
        script.one_pass(None)
    (entry,) = script.cluster.job["status"]["restarts"]
    assert entry["outcome"] == "Preempted"
    assert [job["metadata"]["name"][-2:] for job in script.cluster.of_kind("Job")] == ["-2"]


def test_job_that_its_queue_suspends_is_queued_and_not_running() -> None:
    life = Life()
    life.passes(2)
    life.runs(step=3)
    life.change_child(1, suspended=True)
    words = last_words(Outcome.PREEMPTED, step=3)
    life.put_pod(slim_pod(1, gone=True, phase="Failed", exit_code=143, last_words=words))
    life.one_pass()
    assert life.condition("Running") | {"lastTransitionTime": "", "message": ""} == {
        "type": "Running", "status": "False", "reason": "Queued", "lastTransitionTime": "", "message": "",
        "observedGeneration": 1,
    }  # fmt: skip
    assert life.status["phase"] == "Starting"
    life.change_child(1, suspended=False)
    life.one_pass()
    assert (life.status["phase"], life.condition("Running")["reason"]) == ("Starting", "PodsPending")
    life.put_pod(slim_pod(1, uid="pod-new", phase="Pending", ip="", created=life.now))
    life.one_pass()
    assert life.status["phase"] == "Starting"
    life.put_pod(slim_pod(1, uid="pod-new", created=life.now))
    life.reports["pod-new"] = Pulled(report(4))
    life.one_pass()
    assert (life.status["phase"], life.status["attempt"]) == ("Running", 1)
    assert "restarts" not in life.status


def test_silence_while_the_operator_could_not_act_gives_up_nobody_and_a_silent_launcher_is_given_up(loop: Loop) -> None:
    script = Script(loop)
    cluster = script.cluster
    cluster.apply(SPEC | {"watchdog": {"stallTimeoutSeconds": 60, "startTimeoutSeconds": 60}})
    script.one_pass(None)
    script.start()
    script.one_pass(None)
    silent = {pod["metadata"]["uid"] for pod in cluster.of_kind("Pod")}
    cluster.silent |= silent
    for _ in range(10):
        script.one_pass(None)
    cluster.now += timedelta(days=1)  # the operator's machine slept
    script.one_pass(None)
    script.operator.stop()
    script.operator = Operator(cluster, loop)
    for _ in range(20):
        script.one_pass(None)
    assert cluster.job["status"]["phase"] == "Running"
    assert "restarts" not in cluster.job["status"]
    for _ in range(20):
        script.one_pass(None)
    (told,) = cluster.job["status"]["restarts"]
    assert (told["outcome"], told["counted"]) == ("Hung", True)
    assert not cluster.overlaps
