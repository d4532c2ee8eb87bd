"""Hostile specs on the real API server: each is refused at once or answered in words, and no operator falls over."""

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cluster.chaos import LONG, Chaos, record
from tests.cluster.kube import Object, eventually, items, job, kubectl
from tests.cluster.proxy import Proxy
from tests.cluster.specs import generated

pytestmark = pytest.mark.cluster
BATCH = 50
UNDECIDED = ("", "Creating", "Pending")
"""Reasons that say only that something is under way."""


@pytest.fixture
def server() -> Iterator[httpx.Client]:
    """The API server, without the client's own checks."""
    proxy = Proxy(Path(os.environ["KUBECONFIG"]))
    with httpx.Client(base_url=proxy.url, timeout=30) as client:
        yield client
    proxy.close()


def answered(found: Object) -> bool:
    """Whether the job's status says what has become of it."""
    status, generation = found.get("status", {}), found["metadata"]["generation"]
    reasons = {entry["type"]: entry for entry in status.get("conditions", [])}
    if status.get("observedGeneration") != generation or "Reconciling" not in reasons:
        return False
    told = reasons["Reconciling"]["reason"] not in UNDECIDED
    if status["phase"] == "Failed":
        return told and reasons["Failed"]["message"] != ""
    return told


def test_generated_specs_are_refused_or_answered(chaos: Chaos, server: httpx.Client) -> None:
    count = 1000 if LONG else 50
    outcomes: Counter[str] = Counter()
    specs = generated(count, number=int(os.environ.get("CHAOS_SEED", "1")))
    for first in range(0, len(specs), BATCH):
        outcomes += batch(chaos, server, specs[first : first + BATCH], first)
    print(dict(outcomes))
    assert chaos.operator.alive()
    accepted = sum(outcomes.values()) - outcomes["refused at apply"]
    assert accepted > len(specs) / 10, outcomes
    record(f"{len(specs)} generated specs: {json.dumps(dict(outcomes))}", "POST, checked strictly")


def batch(chaos: Chaos, server: httpx.Client, specs: list[Any], first: int) -> Counter[str]:
    """What became of each spec."""
    outcomes: Counter[str] = Counter()
    path = f"/apis/rl.colocated.dev/v1alpha1/namespaces/{chaos.namespace}/colocatedrljobs?fieldValidation=Strict"
    for number, spec in enumerate(specs, first):
        answer = server.post(path, json=job(f"g{number}", spec))
        assert answer.status_code in (201, 400, 413, 422), (answer.text, spec)
        if answer.status_code != 201:
            outcomes["refused at apply"] += 1
            assert answer.json()["message"]

    def all_answered() -> list[Object]:
        found = items("crj", chaos.namespace)
        silent = [(entry["spec"], entry.get("status")) for entry in found if not answered(entry)]
        assert not silent, json.dumps(silent)
        return [*found, {}]

    for entry in eventually(all_answered, 90)[:-1]:
        reason = next(c["reason"] for c in entry["status"]["conditions"] if c["type"] == "Reconciling")
        outcomes[f"{entry['status']['phase']}: {reason}"] += 1
    kubectl("delete", "crj", "--all", "-n", chaos.namespace, "--wait=false")
    eventually(lambda: not items("crj", chaos.namespace), 60)
    time.sleep(0.5)
    return outcomes
