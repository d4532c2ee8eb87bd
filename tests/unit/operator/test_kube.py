"""Where the API server has each kind."""

import pytest

from colocated_operator.kube import _kube_error, _path


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


@pytest.mark.parametrize(
    ("data", "taken", "message"),
    [
        (b'{"message": "x already exists", "reason": "AlreadyExists"}', True, "x already exists"),
        (b'{"message": "modified", "reason": "Conflict"}', False, "modified"),
        (b'{"message": "odd", "reason": null}', False, "odd"),
        (b"<html>", False, "<html>"),
        (b"[1]", False, "[1]"),
    ],
)
def test_conflict_is_a_taken_name_only_where_the_server_says_so(data: bytes, taken: bool, message: str) -> None:
    error = _kube_error(409, data, None)
    assert (error.exists_already, error.message) == (taken, message)
