"""Faults of the operator, its API server and the cluster, in their short form: `make chaos` runs the long one.

The operator is a process behind a proxy, so that it can be killed at any call, and the API server be away for it alone.
"""

import copy
import json
import socket
import time
from pathlib import Path

import pytest
from tests.cluster.chaos import LONG, Chaos, Monotone, has_told, nothing_doubled, record, recovers, undisturbed
from tests.cluster.kube import (
    apply,
    at_step,
    condition,
    eventually,
    get,
    items,
    kubectl,
    of,
    patch,
    reaches,
    status,
    stub_job,
)
from tests.cluster.process import WATCHED, Process
from tests.cluster.proxy import Call, Fault, Judge
from tests.ports import free_port

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("steady")]
CHILDREN = ("jobs", "pods", "configmaps", "services", "persistentvolumeclaims")
STEADY = "steady"
"""Name of the job that trains through all these tests and must not notice."""
TAINT = "chaos"
STORM = 4 if LONG else 2
"""Seconds."""


@pytest.fixture(scope="module")
def steady(chaos: Chaos) -> Chaos:
    """The operator with the steady job, which stays where a node is tainted by these tests."""
    job = stub_job(STEADY, "--steps", "100000", "--step-seconds", "0.2")
    job["spec"]["runtime"]["podTemplate"]["spec"]["tolerations"] = [{"key": TAINT, "operator": "Exists"}]
    apply(chaos.namespace, job)
    at_step(chaos.namespace, STEADY, 1)
    return chaos


# The operator is killed


def test_operator_killed_at_every_kind_of_write(steady: Chaos) -> None:
    """Before or after the API server carries it out, in turns; in the long form both, at each single write."""
    seen: dict[str, int] = {}
    times = 2 if LONG else 1
    kill, before = steady.operator.kill, steady.operator.kills

    def judge(call: Call) -> Fault | None:
        what = call.what if LONG else call.kind
        if not call.mutating or "kills" not in call.what or seen.get(what, 0) >= times:
            return None
        number = sum(seen.values())
        seen[what] = seen.get(what, 0) + 1
        return Fault(before=kill, cut=True) if number % 2 else Fault(after=kill)

    steady.proxy.judge = judge
    life(steady, "kills")
    steady.proxy.judge = lambda _: None
    assert steady.operator.kills - before == sum(seen.values())
    assert len(seen) >= 7, seen  # Jobs tried and made, ConfigMap, Service, claim, status, Event


def life(chaos: Chaos, name: str) -> None:
    """A job that crashes, crashes again and fails; the operator is started whenever it is gone."""
    restart = {"maxRestarts": 1, "backoffSeconds": 0}
    apply(chaos.namespace, stub_job(name, "--steps", "3", "--fail-at", "2", restart=restart))
    follow, end, told = Monotone(), time.monotonic() + 400, ("Running", "Crash", "Failed")
    while True:
        if not chaos.operator.alive():
            began = time.monotonic()
            chaos.operator.again()
            record("operator killed at a call of a pass", "SIGKILL by the proxy", time.monotonic() - began)
        if follow.look(chaos.namespace, name).get("phase") == "Failed" and has_told(chaos.namespace, name, *told):
            break
        assert time.monotonic() < end, status(chaos.namespace, name)
        time.sleep(0.2)
    done = status(chaos.namespace, name)
    assert [(entry["attempt"], entry["outcome"]) for entry in done["restarts"]] == [(1, "Crash")]
    assert (done["attempt"], done["restartCount"]) == (2, 1)
    assert len(of(name, "jobs", chaos.namespace)) == 2
    nothing_doubled(chaos.namespace)


def test_two_operators_by_mistake(steady: Chaos, tmp_path: Path) -> None:
    steady.operator.again()
    second = Process(steady.proxy, (steady.namespace,), tmp_path)
    second.start()
    eventually(lambda: steady.proxy.watching == 2 * WATCHED)
    try:
        life(steady, "two")
    finally:
        second.stop()
    assert "Traceback" not in second.log, second.log[-5000:]
    record("two operators by mistake", "a second process, through a crash and a restart")


def test_port_that_is_taken_is_named(chaos: Chaos, tmp_path: Path) -> None:
    operator, port = Process(chaos.proxy, (chaos.namespace,), tmp_path), free_port()
    with socket.create_server(("0.0.0.0", port)):
        operator.start(liveness_port=port)
        eventually(lambda: not operator.alive(), 30)
    words = f"('0.0.0.0', {port}): address already in use; COLOCATED_LIVENESS_PORT and"
    assert words in operator.log, operator.log[-5000:]
    assert operator.exit_code == 1


def test_second_request_to_end_changes_nothing(chaos: Chaos, tmp_path: Path) -> None:
    operator = Process(chaos.proxy, (chaos.namespace,), tmp_path)
    others = chaos.proxy.watching
    operator.start()
    eventually(lambda: chaos.proxy.watching == others + WATCHED)
    operator.terminate()
    time.sleep(0.2)  # two at once are one
    operator.stop()
    assert "Traceback" not in operator.log, operator.log[-5000:]


# What one job, which trains all the while, must not notice


def refuse(fault: Fault) -> Judge:
    """Every call that is no watch meets `fault`."""
    return lambda call: None if call.watch else fault


def test_api_server_that_fails_in_every_way(steady: Chaos) -> None:
    storms = {
        "429, Retry-After 1": refuse(Fault(status=429, retry_after=1)),
        "500": refuse(Fault(status=500)),
        "503": refuse(Fault(status=503)),
        "409": lambda call: Fault(status=409) if call.method == "PATCH" else None,
        "cut": refuse(Fault(cut=True)),
        "answers lost": lambda call: Fault(after=lambda: None) if call.mutating else None,
        "2 s late": refuse(Fault(delay=2)),
    }
    for name in storms if LONG else ("429, Retry-After 1", "500", "409", "cut", "answers lost"):
        steady.proxy.judge = storms[name]
        steady.proxy.cut_streams()
        time.sleep(STORM)
        steady.proxy.judge = lambda _: None
        record(f"API server: {name} for {STORM} s, watches cut", "proxy", recovers(steady.namespace, STEADY))
    undisturbed(steady.namespace, STEADY)


@pytest.mark.parametrize("code", [410, 500])
def test_watch_that_ends_with_an_error(steady: Chaos, code: int) -> None:
    error = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "injected"}
    assert steady.proxy.inject({"type": "ERROR", "object": error}) == WATCHED
    seconds = recovers(steady.namespace, STEADY)
    steady.operator.watches()
    record(f"watch stream: ERROR {code}", "proxy", seconds)
    undisturbed(steady.namespace, STEADY)
    if code == 500:  # kopf gives up, and is begun again
        assert "WatchingError" in steady.operator.log
        steady.operator.forget_log()


def test_crd_upgraded_under_a_running_job(steady: Chaos) -> None:
    crd = json.loads(kubectl("get", "crd", "colocatedrljobs.rl.colocated.dev", "-o", "json"))
    del crd["metadata"]["resourceVersion"]
    newer = copy.deepcopy(crd)
    spec = newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    spec["newField"] = {"type": "string", "description": "Of a later release."}
    kubectl("replace", "-f", "-", stdin=newer)
    try:
        record("CRD upgraded under a running job", "kubectl replace", recovers(steady.namespace, STEADY))
        patch(steady.namespace, STEADY, {"spec": {"newField": "x", "ttlSecondsAfterFinished": 100}})
        eventually(lambda: status(steady.namespace, STEADY)["observedGeneration"] == 2)
        undisturbed(steady.namespace, STEADY)
        assert condition(steady.namespace, STEADY, "Stalled")["status"] == "False"
    finally:
        kubectl("replace", "-f", "-", stdin=crd)


# The cluster takes things away


def next_attempt(chaos: Chaos, name: str, fault: str, how: str) -> None:
    """The fault was just now: the next attempt runs, from no earlier step, and the restart is not counted."""
    began, before = time.monotonic(), status(chaos.namespace, name)["progress"]["step"]
    eventually(lambda: status(chaos.namespace, name)["attempt"] == 2)
    now = reaches(chaos.namespace, name, "Running")
    lost = max(0, before - now["resumedFromStep"])
    record(fault, how, time.monotonic() - began, f"{lost} steps")
    (entry,) = now["restarts"]
    assert (entry["attempt"], entry["counted"], now["restartCount"]) == (1, False, 0)
    assert lost == 0
    nothing_doubled(chaos.namespace)


def test_job_deleted_by_hand(chaos: Chaos, running: str) -> None:
    (job,) = of(running, "jobs", chaos.namespace)
    kubectl("delete", "job", job["metadata"]["name"], "-n", chaos.namespace, "--wait=false")
    next_attempt(chaos, running, "Job deleted by hand", "kubectl delete")


def test_delete_that_no_watch_has_told_is_found(chaos: Chaos, running: str) -> None:
    """The Job and its pod are deleted while the watches are away, and the lists afterwards know nothing of them."""
    (job,) = of(running, "jobs", chaos.namespace)
    chaos.proxy.judge = lambda call: Fault(cut=True)
    chaos.proxy.cut_streams()
    kubectl("delete", "job", job["metadata"]["name"], "-n", chaos.namespace, "--cascade=foreground")
    began = time.monotonic()
    chaos.proxy.judge = lambda _: None
    (entry,) = eventually(lambda: status(chaos.namespace, running).get("restarts"), 60)
    record("Job deleted while the watches were away", "kubectl, proxy", time.monotonic() - began, "at most one step")
    assert (entry["attempt"], entry["outcome"], entry["counted"]) == (1, "Preempted", False)


def test_node_tainted_and_drained(chaos: Chaos, running: str) -> None:
    (pod,) = of(running, "pods", chaos.namespace)
    node = pod["spec"]["nodeName"]
    kubectl("taint", "node", node, f"{TAINT}=x:NoExecute")
    try:
        eventually(lambda: status(chaos.namespace, running).get("restarts"))
        (entry,) = status(chaos.namespace, running)["restarts"]
        assert entry["outcome"] == "Preempted"
        eventually(lambda: condition(chaos.namespace, running, "Running")["reason"] == "Unschedulable")
    finally:
        kubectl("taint", "node", node, f"{TAINT}:NoExecute-")
    next_attempt(chaos, running, "node tainted NoExecute, then free again", "kubectl taint")


def test_queue_suspends_the_child_and_resumes_it(chaos: Chaos, running: str) -> None:
    """As Kueue does: the same attempt goes on, in a new pod."""
    (job,) = of(running, "jobs", chaos.namespace)
    (pod,) = of(running, "pods", chaos.namespace)
    change = lambda value: kubectl(  # noqa: E731
        "patch", "job", job["metadata"]["name"], "-n", chaos.namespace, "--type=merge",
        "-p", json.dumps({"spec": {"suspend": value}}),
    )  # fmt: skip
    change(True)
    eventually(lambda: condition(chaos.namespace, running, "Running")["reason"] == "Queued")
    eventually(lambda: not of(running, "pods", chaos.namespace), 150)
    saved = status(chaos.namespace, running)["checkpoints"]["step"]
    began = time.monotonic()
    change(False)
    eventually(lambda: condition(chaos.namespace, running, "Running")["status"] == "True")
    record("queue suspends and resumes the Job", "spec.suspend of the Job", time.monotonic() - began)
    assert eventually(lambda: status(chaos.namespace, running).get("resumedFromStep")) == saved
    assert of(running, "pods", chaos.namespace)[0]["metadata"]["uid"] != pod["metadata"]["uid"]
    undisturbed(chaos.namespace, running)


QUOTAS = [("count/jobs.batch", "CreateForbidden"), ("pods", "PodsRefused")]


@pytest.mark.parametrize(("resource", "reason"), QUOTAS if LONG else QUOTAS[:1])
def test_quota_is_waited_for(chaos: Chaos, resource: str, reason: str) -> None:
    name = reason.lower()
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}}
    apply(chaos.namespace, quota | {"spec": {"hard": {resource: "0"}}})
    eventually(lambda: "used" in get("resourcequota", "none", chaos.namespace).get("status", {}))
    apply(chaos.namespace, stub_job(name, "--steps", "1"))
    eventually(lambda: condition(chaos.namespace, name, "Reconciling")["reason"] == reason)
    said = condition(chaos.namespace, name, "Reconciling")["message"]
    assert "quota" in said
    kubectl("delete", "resourcequota", "none", "-n", chaos.namespace)
    began = time.monotonic()
    end = reaches(chaos.namespace, name, "Complete")
    record(f"quota of {resource} used up, then free", "ResourceQuota", time.monotonic() - began)
    assert (end["attempt"], end["restartCount"]) == (1, 0)
    eventually(lambda: has_told(chaos.namespace, name, "Running", "Complete"))
    nothing_doubled(chaos.namespace)


# Deletion


def test_job_deleted_in_each_phase_leaves_nothing_and_its_name_is_free(chaos: Chaos) -> None:
    nowhere = {"podTemplate": {"spec": {"nodeSelector": {"nowhere": "true"}}}}
    wanted = {
        "pending": (stub_job("pending", checkpoint={"storage": {"claim": "none"}}), "Pending"),
        "starting": (stub_job("starting", runtime=nowhere), "Starting"),
        "running": (stub_job("running", "--steps", "2000", "--step-seconds", "0.5"), "Running"),
        "suspended": (stub_job("suspended", suspend=True), "Suspended"),
        "restarting": (
            stub_job("restarting", "--fail-at", "1", restart={"maxRestarts": 3, "backoffSeconds": 600}), "Restarting",
        ),
        "complete": (stub_job("complete", "--steps", "1"), "Complete"),
        "failed": (stub_job("failed", "--fail-at", "1", restart={"maxRestarts": 0}), "Failed"),
    }  # fmt: skip
    apply(chaos.namespace, *(job for job, _ in wanted.values()))
    for name, (_, phase) in wanted.items():
        reaches(chaos.namespace, name, phase, seconds=200)
    gone = {get("crj", name, chaos.namespace)["metadata"]["uid"] for name in wanted}
    began = time.monotonic()
    kubectl("delete", "crj", *wanted, "-n", chaos.namespace, "--timeout=20s")
    apply(chaos.namespace, stub_job("pending", "--steps", "1"))
    reaches(chaos.namespace, "pending", "Complete", seconds=200)

    def nothing_of_them() -> bool:
        left = [entry["metadata"] for kind in CHILDREN for entry in items(kind, chaos.namespace)]
        return not gone & {meta.get("labels", {}).get("rl.colocated.dev/job-uid") for meta in left}

    eventually(nothing_of_them, 200)
    record("ColocatedRLJob deleted in each of 7 phases", "kubectl delete", time.monotonic() - began)


def test_job_deleted_while_no_operator_runs(chaos: Chaos, running: str) -> None:
    chaos.operator.kill()
    kubectl("delete", "crj", running, "-n", chaos.namespace, "--timeout=20s")
    eventually(lambda: not any(of(running, kind, chaos.namespace) for kind in ("jobs", "pods", "services")), 60)
    chaos.operator.again()
    record("ColocatedRLJob deleted while no operator ran", "SIGKILL, kubectl delete")


def test_namespace_deleted_under_running_jobs(steady: Chaos) -> None:
    """The last test: it takes the namespace of all."""
    undisturbed(steady.namespace, STEADY)
    began = time.monotonic()
    kubectl("delete", "namespace", steady.namespace, "--timeout=100s")
    record("namespace deleted", "kubectl delete", time.monotonic() - began)
    assert steady.operator.alive()
