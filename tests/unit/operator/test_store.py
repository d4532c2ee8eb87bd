"""The operator's copy of the cluster."""

from dataclasses import replace
from datetime import timedelta

from tests.unit.operator.cluster import START, UID, child, pod, rl_job

from colocated_operator.observe import Observation
from colocated_operator.store import Store


def filled() -> Store:
    store = Store(lambda: START)
    store.put_job(rl_job())
    store.put_child(child())
    store.put_pod(pod())
    return store


def seen(store: Store) -> Observation:
    observation = store.snapshot(UID)
    assert observation is not None
    return observation


def test_older_state_never_replaces_a_newer_one() -> None:
    store = filled()
    store.put_child(child(version=5, suspended=True))
    store.put_child(child(version=4))
    assert seen(store).children[0].suspended


def test_pod_with_our_labels_but_a_stranger_as_owner_is_not_ours() -> None:
    store = filled()
    store.put_pod(pod(index=1, job_uid="someone-else"))
    store.put_pod(pod(index=2, namespace="elsewhere"))
    assert [entry.index for entry in seen(store).pods] == [0]


def test_job_of_another_namespace_is_not_ours() -> None:
    store = filled()
    store.put_child(child(2, namespace="elsewhere"))
    assert [entry.attempt for entry in seen(store).children] == [1]


def test_what_no_event_told_is_found_by_the_fresh_list() -> None:
    store = filled()
    assert store.uids() == {UID, "job-1", "pod-1-0"}
    assert store.prune_pods({"pod-1-0"}) == {UID}
    assert store.prune_pods({"pod-1-0"}) == set()
    assert seen(store).pods[0].gone
    assert store.prune_children({"job-1"}) == {UID}
    assert seen(store).children[0].gone
    assert store.uids() == {UID}
    assert store.prune_jobs({UID}) == {UID}
    assert store.snapshot(UID) is None


def test_what_is_created_while_the_lists_are_made_stays() -> None:
    store = filled()
    before = store.uids()
    store.put_child(child(2))
    assert store.prune_children(before - {"job-1"}) == set()
    assert not any(entry.gone for entry in seen(store).children)


def test_nothing_is_left_of_a_deleted_job_whose_parts_are_told_later() -> None:
    store = filled()
    store.forget_job(UID)
    store.put_child(replace(child(version=9), gone=True))
    store.put_pod(replace(pod(version=9), gone=True))
    store.prune_children(set())
    store.prune_pods(set())
    store.put_job(rl_job())
    assert seen(store).children == ()
    assert store.owner_of("job-1") is None


def test_deleted_objects_stay_until_their_attempt_is_closed() -> None:
    store = filled()
    store.put_child(replace(child(version=2), gone=True))
    store.put_child(child(2))
    store.forget(UID, before=1)
    assert len(seen(store).children) == 2
    store.forget(UID, before=2)
    assert [entry.attempt for entry in seen(store).children] == [2]
    assert seen(store).pods == ()


def test_jobs_are_counted_by_phase() -> None:
    store = filled()
    store.put_job(replace(rl_job(status={"phase": "Running"}), uid="other"))
    assert [store.count(phase) for phase in ("Pending", "Running", "Failed")] == [1, 1, 0]


def test_write_that_its_watch_never_shows_is_noticed() -> None:
    now = [START]
    store = Store(lambda: now[0])
    store.wrote(UID, 7)
    now[0] += timedelta(seconds=100)
    store.watched(UID, 6)
    assert store.longest_silence() == 100
    store.watched(UID, 7)
    assert store.longest_silence() == 0


def test_write_that_its_watch_shows_before_its_answer_is_no_silence() -> None:
    """The answer comes through a thread, the event does not: either may be first."""
    now = [START]
    store = Store(lambda: now[0])
    store.watched(UID, 7)
    store.wrote(UID, 7)
    now[0] += timedelta(seconds=100)
    assert store.longest_silence() == 0
    store.wrote(UID, 8)
    now[0] += timedelta(seconds=100)
    assert store.longest_silence() == 100
