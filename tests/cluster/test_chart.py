"""The chart on a cluster: install, upgrade, uninstall; a list of namespaces, with the rights for them alone."""

import uuid
from collections.abc import Iterator

import pytest
from tests.cluster.conftest import restricted
from tests.cluster.kube import RELEASE, SYSTEM, apply, get, helm, install, kubectl, reaches, stub_code, stub_job

pytestmark = pytest.mark.cluster

ACCOUNT = f"system:serviceaccount:{SYSTEM}:{RELEASE}"


@pytest.fixture
def namespaces() -> Iterator[tuple[str, str]]:
    """Two of them, with the stub's code."""
    names = [f"t-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    for name in names:
        restricted(name)
    yield names[0], names[1]
    for name in names:
        kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")


def allowed(verb: str, resource: str, namespace: str) -> bool:
    said = kubectl("auth", "can-i", verb, resource, f"--as={ACCOUNT}", "-n", namespace, check=False)
    return said.startswith("yes")


def test_life_of_a_release_for_a_list_of_namespaces(namespaces: tuple[str, str]) -> None:
    ours, other = namespaces
    restricted(SYSTEM)
    install(f"watchNamespaces={{{ours}}}")
    for name in namespaces:
        apply(name, stub_code())
        apply(name, stub_job("job", "--steps", "1"))
    reaches(ours, "job", "Complete")
    assert "status" not in get("crj", "job", other)
    assert allowed("create", "jobs.batch", ours)
    assert not allowed("create", "jobs.batch", other)
    for resource in ("secrets", "pods/exec", "pods/log"):
        assert not allowed("get", resource, ours)
    assert not allowed("update", "colocatedrljobs.rl.colocated.dev", ours), "spec is never written"

    install(f"watchNamespaces={{{ours},{other}}}")
    reaches(other, "job", "Complete")

    kubectl("delete", "namespace", other)  # its Role goes with it
    kubectl("rollout", "restart", f"deploy/{RELEASE}", "-n", SYSTEM)
    kubectl("rollout", "status", f"deploy/{RELEASE}", "-n", SYSTEM, "--timeout=60s")
    apply(ours, stub_job("after", "--steps", "1"))
    reaches(ours, "after", "Complete")

    helm("uninstall", RELEASE, "-n", SYSTEM, "--wait")
    assert kubectl("get", "deploy", "-n", SYSTEM, "-o", "name") == ""
    assert not allowed("list", "colocatedrljobs.rl.colocated.dev", ours)
    assert get("crj", "job", ours)["status"]["phase"] == "Complete", "the CRD, and with it all jobs, stays"
