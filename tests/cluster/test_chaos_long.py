"""The long form of the fault tests: minutes each. `make chaos` runs them."""

import json
import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from tests.cluster.chaos import LONG, Chaos, Monotone, nothing_doubled, passing, record, recovers, undisturbed
from tests.cluster.kube import ROOT, Object, apply, eventually, items, kubectl, of, status, stub_job
from tests.cluster.proxy import Call, Fault

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not LONG, reason="the long form: make chaos"),
    pytest.mark.timeout(3600),
]
JOBS = 20
KILLS = int(os.environ.get("CHAOS_KILLS", "200"))
MOST_CALLS = 60
"""An operator lives for so many calls at most: that takes it from its first list to passes over all jobs."""


def test_random_kills_while_twenty_jobs_run(chaos: Chaos) -> None:
    """At a random call, before or after the API server carries it out; every fifth job crashes now and then."""
    dice = random.Random(int(os.environ.get("CHAOS_SEED", "1")))
    names = [f"j{number}" for number in range(JOBS)]
    jobs = [
        stub_job(name, "--steps", "100000", "--step-seconds", "3", *crash(number), restart=restarts(number))
        for number, name in enumerate(names)
    ]
    apply(chaos.namespace, *jobs)
    follow, chosen = Monotone(), {"left": 0}

    def judge(call: Call) -> Fault | None:
        chosen["left"] -= 1
        if chosen["left"] != 0:
            return None
        return Fault(before=chaos.operator.kill, cut=True) if dice.random() < 0.5 else Fault(after=chaos.operator.kill)

    chaos.operator.kill()
    chaos.operator.kills = 0
    chaos.proxy.judge = judge
    while chaos.operator.kills < KILLS:
        chosen["left"] = dice.randrange(1, MOST_CALLS)
        began = time.monotonic()
        chaos.operator.start()
        while chaos.operator.alive() and time.monotonic() - began < 8:
            time.sleep(0.1)
        if chaos.operator.alive():
            chaos.operator.kill()
        follow.look_at_all(chaos.namespace)
    chaos.proxy.judge = lambda _: None
    seconds = chaos.operator.again()
    began = time.monotonic()
    eventually(lambda: all(seen_lately(chaos.namespace, name) for name in names), 120)
    record(f"operator killed {KILLS} times at random, {JOBS} jobs", "SIGKILL", seconds + time.monotonic() - began)
    for name in names:
        now = follow.look(chaos.namespace, name)
        ended = [entry["attempt"] for entry in now.get("restarts", [])]
        assert ended == list(range(max(1, now["attempt"] - len(ended)), now["attempt"])), (name, now)
        assert crash(names.index(name)) or (now["attempt"], now.get("restartCount", 0)) == (1, 0), (name, now)
    nothing_doubled(chaos.namespace)
    kubectl("delete", "crj", *names, "-n", chaos.namespace)


def crash(number: int) -> tuple[str, ...]:
    """Every fifth job fails at its 20th step, again and again."""
    return ("--fail-at", "20") if number % (JOBS // 4) == 0 else ()


def restarts(number: int) -> Object:
    return {"maxRestarts": 1000, "backoffSeconds": 0} if crash(number) else {"maxRestarts": 0}


def seen_lately(namespace: str, name: str) -> bool:
    at = status(namespace, name).get("observedAt")
    return at is not None and (datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds() < 90


def test_api_server_away_for_two_minutes(chaos: Chaos, running: str) -> None:
    subprocess.run([str(ROOT / "localcluster/restart-apiserver"), "120"], check=True, timeout=300)
    record("API server away for 2 minutes", "stopped and started", recovers(chaos.namespace, running))
    undisturbed(chaos.namespace, running)
    assert chaos.operator.alive()


def test_api_server_answers_503_for_two_minutes(chaos: Chaos, running: str) -> None:
    chaos.proxy.judge = lambda _: Fault(status=503)
    chaos.proxy.cut_streams()
    time.sleep(120)
    chaos.proxy.judge = lambda _: None
    record("API server: 503 for 2 minutes", "proxy", recovers(chaos.namespace, running))
    undisturbed(chaos.namespace, running)
    assert chaos.operator.alive()


def test_watches_that_fall_silent(chaos: Chaos, running: str) -> None:
    """The streams stay open and say nothing: what happens meanwhile is found when they are cut."""
    (pod,) = of(running, "pods", chaos.namespace)
    chaos.proxy.silence_streams()
    kubectl("delete", "pod", pod["metadata"]["name"], "-n", chaos.namespace, "--wait=false")
    began = time.monotonic()
    eventually(lambda: status(chaos.namespace, running)["attempt"] == 2, 400)
    record("watch streams silent, a pod deleted meanwhile", "proxy", time.monotonic() - began, "at most one step")
    nothing_doubled(chaos.namespace)


# A node goes


@contextmanager
def simulated_node(name: str) -> Iterator[None]:
    """A node that the scheduler takes for alive: its lease is renewed, but nothing runs there."""
    meta = {"name": name, "labels": {"simulated": "true", "kubernetes.io/hostname": name}}
    kubectl("apply", "-f", "-", stdin={"apiVersion": "v1", "kind": "Node", "metadata": meta})
    size = {"cpu": "8", "memory": "16Gi", "pods": "20", "ephemeral-storage": "50Gi"}
    over = threading.Event()

    def beat() -> None:
        while not over.wait(5):
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            lease = {
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": name, "namespace": "kube-node-lease"},
                "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now},
            }  # fmt: skip
            ready = {"type": "Ready", "status": "True", "reason": "Simulated", "lastHeartbeatTime": now[:19] + "Z"}
            change = {"status": {"conditions": [ready], "capacity": size, "allocatable": size}}
            kubectl("apply", "-f", "-", stdin=lease, check=False)
            kubectl(
                "patch", "node", name, "--subresource=status", "--type=merge", "-p", json.dumps(change), check=False
            )

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        kubectl("delete", "node", name, "--wait=false")


def test_kubelet_gone_and_recovery_on_another_node(chaos: Chaos) -> None:
    """The kubelet is killed, its containers go on: the attempt is given up, the next one is put elsewhere."""
    job = stub_job("lost", "--steps", "5000", "--step-seconds", "0.5")
    job["spec"]["runtime"]["podTemplate"]["spec"]["terminationGracePeriodSeconds"] = 5
    apply(chaos.namespace, job)
    recovers(chaos.namespace, "lost")
    (pod,) = of("lost", "pods", chaos.namespace)
    with simulated_node("simulated"):
        began = time.monotonic()
        gone = subprocess.Popen([str(ROOT / "localcluster/restart-kubelet"), "200"])
        try:
            eventually(lambda: status(chaos.namespace, "lost")["attempt"] == 2, 200)
            elsewhere = eventually(lambda: pods_on(chaos.namespace, "simulated"), 60)
            record("node gone: kubelet killed", "SIGKILL", time.monotonic() - began, "steps since the last checkpoint")
            (entry,) = status(chaos.namespace, "lost")["restarts"]
            assert (entry["outcome"], entry["counted"]) == ("NodeLost", False)
            assert elsewhere[0]["metadata"]["labels"]["rl.colocated.dev/attempt"] == "2"
            nothing_doubled(chaos.namespace)
        finally:
            gone.wait(400)
        names = lambda: [entry["metadata"]["name"] for entry in items("pods", chaos.namespace)]  # noqa: E731
        eventually(lambda: pod["metadata"]["name"] not in names(), 120)
        passing(5, lambda: status(chaos.namespace, "lost")["attempt"] == 2)
        kubectl("delete", "crj", "lost", "-n", chaos.namespace)
        for left in pods_on(chaos.namespace, "simulated"):
            kubectl("delete", "pod", left["metadata"]["name"], "-n", chaos.namespace, "--force", "--grace-period=0")


def pods_on(namespace: str, node: str) -> list[Object]:
    return [pod for pod in items("pods", namespace) if pod["spec"].get("nodeName") == node]
