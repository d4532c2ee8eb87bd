"""A job's life, pass by pass: attempts, restarts, suspension, deadlines, refusals."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.unit.contract.bad_jobs import GOOD
from tests.unit.operator.cluster import SETTINGS, START, Life, child, pod, report

from colocated_operator.decide import CreateAttempt, DeleteJob, Sweep, decide
from colocated_operator.observe import Obstacle, Pulled, Trace
from colocated_operator.status.conditions import stamp
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.report import Pressure, Weights


def spec(**changes: object) -> dict[str, object]:
    return GOOD | changes


def test_first_pass_creates_attempt_one_and_the_next_creates_nothing() -> None:
    life = Life()
    (create,) = life.one_pass().actions
    assert isinstance(create, CreateAttempt)
    assert create.plan.attempt == 1
    assert life.one_pass().actions == ()
    assert life.status["phase"] == "Starting"
    assert life.status["attempt"] == 1


def test_running_job_shows_progress_and_counts_as_current() -> None:
    life = Life()
    life.passes(2)
    life.runs(step=3, metrics={"reward": 0.123456, "loss": 1.5e-7})
    assert life.status["phase"] == "Running"
    assert life.status["metrics"] == {"reward": 0.1235, "loss": 1.5e-7}
    assert life.status["progress"]["step"] == 3
    assert life.status["progress"]["percent"] == 30
    assert life.status["checkpoints"]["step"] == 3
    assert life.condition("Reconciling")["status"] == "False"
    assert life.condition("Running")["status"] == "True"


def test_complete_job_keeps_what_its_final_report_lacks() -> None:
    life = Life()
    life.passes(2)
    life.runs(step=9, metrics={"reward": 0.5})
    life.ends(1, Outcome.COMPLETE, step=10, exit_code=0, model_uri="pvc://c/model")
    life.passes(3)
    assert life.status["phase"] == "Complete"
    assert life.condition("Complete")["status"] == "True"
    assert life.status["metrics"] == {"reward": 0.5}
    assert life.status["output"] == {"model": "pvc://c/model"}
    assert life.status["progress"]["percent"] == 100


def test_finished_status_does_not_change_any_more() -> None:
    life = Life()
    life.passes(2)
    life.ends(1, Outcome.COMPLETE, step=10, exit_code=0)
    life.passes(2)
    before = life.status
    life.passes(5, seconds=100)
    assert life.status == before


def test_crash_is_followed_by_a_counted_attempt_after_the_backoff() -> None:
    life = Life(spec(restart={"maxRestarts": 2, "backoffSeconds": 10}))
    life.passes(2)
    life.runs(step=4)
    life.ends(1, Outcome.CRASH, step=4)
    life.one_pass()
    assert life.status["phase"] == "Restarting"
    assert life.status["restarts"][0]["outcome"] == "Crash"
    life.passes(8)
    assert 2 not in life.children, "the backoff of 10 s is not over"
    life.passes(3)
    assert life.children[2].restart_count == 1
    life.one_pass()
    assert life.status["restartCount"] == 1
    assert len(life.status["restarts"]) == 1


def test_counted_restarts_end_at_the_limit() -> None:
    life = Life(spec(restart={"maxRestarts": 2, "backoffSeconds": 0}))
    for attempt in (1, 2, 3):
        life.passes(3)
        life.runs(attempt, step=attempt)
        life.ends(attempt, Outcome.CRASH, step=attempt)
    life.passes(3)
    assert life.status["phase"] == "Failed"
    assert "maxRestarts: 2" in life.condition("Failed")["message"]
    assert max(life.children) == 3


def test_preemptions_are_not_counted_while_each_brings_a_step() -> None:
    life = Life(spec(restart={"maxRestarts": 0, "backoffSeconds": 0}))
    for attempt in range(1, 15):
        life.passes(3)
        life.runs(attempt, step=attempt, resumed_from_step=attempt - 1)
        life.ends(attempt, Outcome.PREEMPTED, step=attempt, exit_code=143, resumed_from_step=attempt - 1)
    life.passes(3)
    assert life.status["phase"] in ("Starting", "Restarting")
    assert life.status["restartCount"] == 0


def test_ten_fruitless_preemptions_fail() -> None:
    life = Life(spec(restart={"maxRestarts": 0, "backoffSeconds": 0}))
    for attempt in range(1, 11):
        life.passes(3)
        life.ends(attempt, Outcome.PREEMPTED, exit_code=143)
    life.passes(3)
    assert life.status["phase"] == "Failed"
    assert "10 times in a row" in life.condition("Failed")["message"]


def test_ten_fruitless_preemptions_fail_also_after_a_good_beginning() -> None:
    life = Life(spec(restart={"maxRestarts": 0, "backoffSeconds": 0}))
    life.passes(3)
    life.runs(1, step=5)
    for attempt in range(1, 13):
        life.ends(attempt, Outcome.PREEMPTED, exit_code=143)
        life.passes(3)
        if life.status["phase"] == "Failed":
            break
    assert life.status["phase"] == "Failed"
    assert max(life.children) in (10, 11)


@pytest.mark.parametrize("outcome", [Outcome.USER_ERROR, Outcome.WEIGHTS_STALE, Outcome.BAD_PLAN])
def test_what_a_restart_cannot_mend_fails_at_once(outcome: Outcome) -> None:
    life = Life()
    life.passes(2)
    life.ends(1, outcome)
    life.passes(3)
    assert life.status["phase"] == "Failed"
    assert life.condition("Failed")["reason"] == outcome.value
    assert list(life.children) == [1]


def test_jobs_of_the_two_last_attempts_stay() -> None:
    life = Life(spec(restart={"maxRestarts": 5, "backoffSeconds": 0}))
    for attempt in (1, 2, 3):
        life.passes(3)
        life.ends(attempt, Outcome.CRASH, step=attempt)
    life.passes(4)
    assert [number for number, job in life.children.items() if not job.gone] == [3, 4]


# Suspension


def test_suspend_deletes_the_job_and_resume_goes_on_uncounted() -> None:
    life = Life()
    life.passes(2)
    life.runs(step=3)
    life.spec = spec(suspend=True)
    assert life.one_pass().actions == (DeleteJob("job-abcde-1"),)
    assert life.condition("Reconciling")["reason"] == "Suspending"
    life.put_pod(pod(1, gone=True))
    life.one_pass()
    assert life.status["phase"] == "Suspended"
    assert life.condition("Suspended")["status"] == "True"
    life.spec = spec()
    life.passes(3)
    assert life.children[2].restart_count == 0
    assert "restarts" not in life.status


def test_resume_before_the_pods_have_ended_is_no_restart() -> None:
    life = Life()
    life.passes(2)
    life.runs(step=3)
    life.spec = spec(suspend=True)
    life.one_pass()
    assert life.status["phase"] == "Running", "the pod still saves"
    life.spec = spec()
    life.one_pass()
    life.put_pod(pod(1, gone=True))
    life.passes(3)
    assert 2 in life.children
    assert "restarts" not in life.status


def test_resume_that_meets_an_obstacle_is_no_restart() -> None:
    life = Life()
    life.passes(2)
    life.suspend()
    life.spec = spec()
    life.obstacle = Obstacle("Waiting", "CreateForbidden", "exceeded quota", 1)
    life.passes(4)
    assert "restarts" not in life.status
    life.obstacle = None
    life.passes(2)
    assert 2 in life.children


def test_resume_by_a_new_operator_that_has_never_seen_the_old_job() -> None:
    life = Life()
    life.passes(2)
    life.suspend()
    life.children.clear()
    life.pods.clear()
    life.spec = spec()
    life.passes(3)
    assert list(life.children) == [2]
    assert "restarts" not in life.status


def test_status_wiped_during_a_suspension_does_not_make_a_number_come_again() -> None:
    life = Life(spec(restart={"maxRestarts": 5, "backoffSeconds": 0}))
    life.passes(2)
    life.ends(1, Outcome.CRASH, step=1)
    life.passes(3)
    life.spec = life.spec | {"suspend": True}
    life.one_pass()
    life.put_pod(pod(2, gone=True))
    life.passes(2)
    assert life.status["phase"] == "Suspended"
    life.status = {}
    life.new_operator()
    life.children.pop(1)
    life.one_pass()
    assert (life.status["phase"], life.status["attempt"], life.status["restartCount"]) == ("Suspended", 2, 1)
    life.spec = life.spec | {"suspend": False}
    life.passes(3)
    assert list(life.children) == [3]
    assert "restarts" not in life.status


def test_operator_killed_before_the_first_job_was_created_begins_with_attempt_one() -> None:
    life = Life()
    life.config_maps[1] = Trace(1, 0)
    life.passes(2)
    assert list(life.children) == [1]
    assert "restarts" not in life.status


def test_config_maps_of_old_attempts_go_also_where_their_jobs_were_deleted() -> None:
    life = Life()
    for number in (1, 2, 3):
        life.passes(3)
        life.spec = life.spec | {"suspend": True}
        life.one_pass()
        life.put_pod(pod(number, gone=True))
        life.passes(2)
        life.spec = life.spec | {"suspend": False}
    life.passes(3)
    assert list(life.config_maps) == [3, 4]


def test_job_suspended_from_the_start_creates_nothing() -> None:
    life = Life(spec(suspend=True))
    assert life.one_pass().actions == ()
    assert life.status["phase"] == "Suspended"


# What users and crashes do to the objects


def test_operator_killed_between_creating_the_job_and_writing_status() -> None:
    life = Life()
    life.children[1] = child(1)
    assert life.one_pass().actions == ()
    assert life.status["attempt"] == 1


def test_wiped_status_is_rebuilt_from_the_jobs() -> None:
    life = Life(spec(restart={"maxRestarts": 5, "backoffSeconds": 0}))
    for attempt in (1, 2):
        life.passes(3)
        life.ends(attempt, Outcome.CRASH, step=attempt)
    life.passes(3)
    life.status = {}
    life.passes(2)
    assert life.status["attempt"] == 3
    assert life.status["restartCount"] == 2
    assert max(life.children) == 3


def test_status_edited_to_complete_does_not_end_a_running_job() -> None:
    life = Life()
    life.passes(2)
    life.runs(step=2)
    life.status = life.status | {"phase": "Complete"}
    life.runs(step=3)
    assert life.status["phase"] == "Running"


@pytest.mark.parametrize(
    "forged",
    [
        {"attempt": 7}, {"attempt": 2}, {"startTime": "yesterday"}, {"startTime": "2026-01-01T00:00:00"},
        {"restarts": [{"attempt": 1, "outcome": "Crash", "time": "noon"}]}, {"conditions": "none"},
    ],
)  # fmt: skip
def test_forged_status_neither_ends_nor_freezes_a_running_job(forged: dict[str, object]) -> None:
    life = Life()
    life.passes(2)
    life.runs(step=2)
    life.status = life.status | forged
    life.runs(step=3)
    life.passes(20)
    assert life.status["phase"] == "Running"
    assert life.status["attempt"] == 1
    assert [number for number, job in life.children.items() if not job.gone] == [1]


def test_new_operator_does_not_take_a_running_job_back_to_starting() -> None:
    life = Life()
    life.passes(2)
    life.runs(step=3)
    life.reports = {}
    life.one_pass()
    assert life.status["phase"] == "Running"
    assert life.status["progress"]["step"] == 3


def test_job_deleted_by_hand_is_followed_by_the_next_attempt() -> None:
    life = Life()
    life.passes(2)
    life.runs(step=3)
    life.change_child(1, gone=True)
    life.put_pod(pod(1, gone=True))
    life.passes(15)
    assert life.status["restarts"][0]["outcome"] == "Preempted"
    assert life.children[2].restart_count == 0


def test_job_deleted_while_no_operator_ran() -> None:
    life = Life()
    life.passes(2)
    life.children.clear()
    life.pods.clear()
    life.passes(15)
    assert life.status["restarts"][0]["outcome"] == "Preempted"
    assert list(life.children) == [2]


def test_lost_node_ends_the_attempt_without_its_word() -> None:
    life = Life()
    life.passes(2)
    life.runs(step=3)
    life.put_pod(pod(1, deadline=life.now, disruption="DeletionByTaintManager"))
    life.passes(10)
    assert life.status["phase"] == "Running", "its node may still answer"
    life.passes(10)
    assert life.status["restarts"][0]["outcome"] == "NodeLost"
    assert life.children[1].gone
    life.passes(15)
    assert 2 in life.children


def test_next_attempt_waits_until_the_pods_of_the_last_are_gone() -> None:
    life = Life(spec(restart={"maxRestarts": 5, "backoffSeconds": 0}))
    life.passes(2)
    life.ends(1, Outcome.CRASH, step=1)
    life.one_pass()
    life.put_pod(pod(1, deadline=life.now + timedelta(seconds=60)))
    life.passes(20)
    assert 2 not in life.children


# Time


def test_deadline_counts_from_the_first_attempt() -> None:
    life = Life(spec(activeDeadlineSeconds=100, restart={"maxRestarts": 5, "backoffSeconds": 0}))
    life.passes(2)
    life.runs(step=1)
    life.now += timedelta(seconds=60)
    life.ends(1, Outcome.CRASH, step=1)
    life.passes(4)
    assert life.status["attempt"] == 2
    life.now += timedelta(seconds=40)
    decision = life.one_pass()
    assert decision.actions == (DeleteJob("job-abcde-2"),)
    assert life.condition("Failed")["reason"] == "DeadlineExceeded"
    first = life.status["completionTime"]
    life.passes(3)
    assert life.status["completionTime"] == first


def test_time_to_live_removes_what_belongs_to_the_job_and_nothing_earlier() -> None:
    life = Life(spec(ttlSecondsAfterFinished=60))
    life.passes(2)
    life.ends(1, Outcome.COMPLETE, step=10, exit_code=0)
    assert life.passes(2).actions == ()
    decision = life.one_pass(seconds=30)
    assert decision.actions == ()
    assert decision.again_in == pytest.approx(60, abs=32)
    assert life.one_pass(seconds=40).actions == (DeleteJob("job-abcde-1"), Sweep("job-abcde"))
    assert life.one_pass().actions == ()
    assert life.status["phase"] == "Complete"


def test_time_to_live_removes_what_is_left_of_a_job_whose_child_was_deleted_by_hand() -> None:
    life = Life(spec(ttlSecondsAfterFinished=60))
    life.passes(2)
    life.ends(1, Outcome.COMPLETE, step=10, exit_code=0)
    life.passes(2)
    life.change_child(1, gone=True)
    life.one_pass()
    life.new_operator()
    assert life.one_pass(seconds=70).actions == (Sweep("job-abcde"),)
    assert life.one_pass().actions == ()
    life.new_operator()
    assert life.one_pass().actions == (Sweep("job-abcde"),), "nobody remembers that it was done"


def test_job_mended_after_a_refusal_is_swept_again_when_it_is_over() -> None:
    life = Life(spec(trainer={"learning_rat": 1e-6}, ttlSecondsAfterFinished=60))
    life.passes(2)
    life.passes(2, seconds=60)
    assert life.swept
    life.spec, life.generation = spec(ttlSecondsAfterFinished=60), 2
    life.passes(2)
    life.ends(1, Outcome.COMPLETE, step=10, exit_code=0)
    life.one_pass()
    assert life.one_pass(seconds=70).actions == (DeleteJob("job-abcde-1"), Sweep("job-abcde"))


# Refusals


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


# Conditions from reports


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


def test_job_being_deleted_is_left_alone() -> None:
    life = Life()
    observation = life.observe()
    deleting = replace(observation, job=replace(observation.job, deleting=True))
    assert decide(deleting, START, SETTINGS).actions == ()
