"""The operator, installed by Helm, and a namespace for each test; restricted Pod Security is enforced on all."""

import os
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cluster.chaos import Chaos
from tests.cluster.kube import (
    RELEASE,
    ROOT,
    SYSTEM,
    apply,
    at_step,
    eventually,
    helm,
    install,
    kubectl,
    operator_log,
    stub_code,
    stub_job,
)
from tests.cluster.process import Process
from tests.cluster.proxy import Proxy

CRD = "crd/colocatedrljobs.rl.colocated.dev"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the cluster's own words beside a failed test: what it did is often gone when somebody looks."""
    report = yield
    if report.failed:
        what = kubectl("get", "pods,pvc,pv,events", "-A", "--sort-by=.metadata.creationTimestamp", check=False)
        report.sections.append(("the cluster", what[-8000:]))
        for log in sorted((Path(os.environ["KUBECONFIG"]).parent / "logs").glob("*.log")):
            if log.stem in ("volumes", "kube-scheduler", "kubelet"):
                report.sections.append((log.name, log.read_text(errors="replace")[-1500:]))
    return report


def restricted(name: str) -> None:
    """Create a namespace that admits restricted pods only."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted", "colocated-test": "true"}
    apply("default", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})


@contextmanager
def fresh_namespace() -> Iterator[str]:
    """One of its own, with the stub's code; it goes at the end."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    restricted(name)
    apply(name, stub_code())
    try:
        yield name
    finally:
        kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")


@pytest.fixture
def namespace() -> Iterator[str]:
    """For one test."""
    with fresh_namespace() as name:
        yield name


@pytest.fixture(scope="module")
def operator() -> Iterator[None]:
    """The operator for the whole cluster. Whatever the tests do to it, no traceback is in its log."""
    restricted(SYSTEM)
    install()
    yield
    log = operator_log()
    helm("uninstall", RELEASE, "-n", SYSTEM, "--wait")
    assert "Traceback" not in log, log[-5000:]


@pytest.fixture(scope="module")
def crd() -> Iterator[None]:
    """The CRD of this checkout, where Helm has not left it behind; it goes again with the module."""
    served = kubectl("get", CRD, "--ignore-not-found", "-o", "name")
    if not served:
        kubectl("create", "-f", str(ROOT / "crds"))
    eventually(lambda: kubectl("wait", "--for=condition=Established", CRD, "--timeout=30s"))
    yield
    if not served:
        kubectl("delete", CRD, "--timeout=100s")


@contextmanager
def operated(folder: Path) -> Iterator[Chaos]:
    """An operator as a process behind a proxy. Whatever befalls it, no traceback is in its log."""
    with fresh_namespace() as name:
        proxy = Proxy(Path(os.environ["KUBECONFIG"]))
        process = Process(proxy, (name,), folder)
        try:
            process.again()
            yield Chaos(proxy, process, name)
        finally:
            process.stop()
            proxy.close()
    assert "Traceback" not in process.log, process.log[-5000:]


@pytest.fixture(scope="module")
def chaos(crd: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chaos]:
    """For the tests of a module."""
    with operated(tmp_path_factory.mktemp("chaos")) as made:
        yield made


@pytest.fixture
def running(chaos: Chaos) -> Iterator[str]:
    """Name of a job that trains for longer than any fault."""
    name = f"run-{uuid.uuid4().hex[:8]}"
    apply(chaos.namespace, stub_job(name, "--steps", "100000", "--step-seconds", "0.2"))
    at_step(chaos.namespace, name, 1)
    yield name
    kubectl("delete", "crj", name, "-n", chaos.namespace, "--wait=false", "--ignore-not-found")
