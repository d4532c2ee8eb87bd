"""The operator, installed by Helm, and a namespace for each test; restricted Pod Security is enforced on all."""

import uuid
from collections.abc import Iterator

import pytest
from tests.cluster.kube import RELEASE, SYSTEM, apply, helm, install, kubectl, operator_log, stub_code


def restricted(name: str) -> None:
    """Create a namespace that admits restricted pods only."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted", "colocated-test": "true"}
    apply("default", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})


@pytest.fixture
def namespace() -> Iterator[str]:
    """A namespace of its own, with the stub's code; it goes at the end."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    restricted(name)
    apply(name, stub_code())
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="module")
def operator() -> Iterator[None]:
    """The operator for the whole cluster. Whatever the tests do to it, no traceback is in its log."""
    restricted(SYSTEM)
    install()
    yield
    log = operator_log()
    helm("uninstall", RELEASE, "-n", SYSTEM, "--wait")
    assert "Traceback" not in log, log[-5000:]
