"""From `create` to a running pod: a ColocatedRLJob beside a plain batch/v1 Job, in turn, on the cluster of $KUBECONFIG.

    python benchmarks/start_latency.py [--rounds 20] [--namespace NAME]

Both pods run the same image and command, so that the difference is the operator's. Seconds are taken by this client,
which polls the pods every 50 ms: from just before the create call until the container is reported as running.
"""

import argparse
import json
import statistics
import subprocess
import time
import uuid
from typing import Any

SLEEP = ["python", "-c", "import time; time.sleep(600)"]
Object = dict[str, Any]


def kubectl(*arguments: str, stdin: Object | None = None) -> str:
    text = None if stdin is None else json.dumps(stdin)
    return subprocess.run(["kubectl", *arguments], input=text, capture_output=True, text=True, check=True).stdout


def colocated_job(name: str) -> Object:
    spec = {
        "runtime": {"command": SLEEP},
        "checkpoint": {"storage": {"emptyDir": {}}},
        "resources": {"requests": {"cpu": "10m"}},
    }
    return {
        "apiVersion": "rl.colocated.dev/v1alpha1", "kind": "ColocatedRLJob", "metadata": {"name": name}, "spec": spec,
    }  # fmt: skip


def plain_job(name: str, pod: Object) -> Object:
    """The pod that the operator made, under a Job that we make."""
    container = {key: value for key, value in pod["containers"][0].items() if key != "volumeMounts"}
    spec = {
        "restartPolicy": "Never", "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0,
        "securityContext": pod["securityContext"],
        "containers": [container | {"command": SLEEP, "readinessProbe": None}],
    }  # fmt: skip
    return {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": {"metadata": {"labels": {"plain": name}}, "spec": spec}},
    }  # fmt: skip


def running_pod(namespace: str, selector: str) -> Object:
    """The pod, once its container runs."""
    while True:
        for pod in json.loads(kubectl("get", "pods", "-n", namespace, "-l", selector, "-o", "json"))["items"]:
            statuses = pod["status"].get("containerStatuses") or []
            if statuses and "running" in statuses[0]["state"]:
                return pod
        time.sleep(0.05)


def timed(namespace: str, body: Object, selector: str) -> tuple[float, Object]:
    """Seconds until the pod of `body` runs, and the pod; `body` is deleted again."""
    began = time.monotonic()
    kubectl("create", "-n", namespace, "-f", "-", stdin=body)
    pod = running_pod(namespace, selector)
    seconds = time.monotonic() - began
    kind = "crj" if body["kind"] == "ColocatedRLJob" else "job"
    kubectl("delete", kind, body["metadata"]["name"], "-n", namespace, "--wait=false")
    kubectl(
        "delete", "pod", pod["metadata"]["name"], "-n", namespace, "--grace-period=0", "--force", "--ignore-not-found"
    )
    return seconds, pod


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--namespace", default=f"latency-{uuid.uuid4().hex[:6]}")
    asked = parser.parse_args()
    kubectl("create", "namespace", asked.namespace)
    times: dict[str, list[float]] = {"ColocatedRLJob": [], "batch/v1 Job": []}
    try:
        _, pod = timed(asked.namespace, colocated_job("warm-up"), "rl.colocated.dev/job=warm-up")
        for number in range(asked.rounds):
            ours, plain = f"ours-{number}", f"plain-{number}"
            seconds, _ = timed(asked.namespace, colocated_job(ours), f"rl.colocated.dev/job={ours}")
            times["ColocatedRLJob"].append(seconds)
            seconds, _ = timed(asked.namespace, plain_job(plain, pod["spec"]), f"plain={plain}")
            times["batch/v1 Job"].append(seconds)
    finally:
        kubectl("delete", "namespace", asked.namespace, "--wait=false")
    print("| to a running container | median | worst | n |\n|---|---|---|---|")
    for name, seconds in times.items():
        print(f"| {name} | {statistics.median(seconds):.2f} s | {max(seconds):.2f} s | {len(seconds)} |")


if __name__ == "__main__":
    main()
