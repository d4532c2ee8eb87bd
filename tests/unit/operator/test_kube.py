"""Where the API server has each kind."""

import pytest

from colocated_operator.kube import _path


@pytest.mark.parametrize(
    ("kind", "namespace", "path"),
    [
        ("Job", "ns", "/apis/batch/v1/namespaces/ns/jobs"),
        ("Pod", None, "/api/v1/pods"),
        ("ColocatedRLJob", "ns", "/apis/rl.colocated.dev/v1alpha1/namespaces/ns/colocatedrljobs"),
    ],
)
def test_path(kind: str, namespace: str | None, path: str) -> None:
    assert _path(kind, namespace) == path
