"""The only module that talks to the API server, besides kopf's watches. Dicts in, dicts out, in threads.

The client's typed methods refuse fields that they do not know, but a newer podTemplate must pass: only its transport
is used.
"""

import asyncio
import functools
import json
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import urllib3
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from colocated_runtime.contract import names

CONNECTIONS = 16
TIMEOUT_SECONDS = 20.0
RESOURCES = {
    names.KIND: (f"apis/{names.GROUP}/{names.VERSION}", names.PLURAL),
    "Job": ("apis/batch/v1", "jobs"),
    "Pod": ("api/v1", "pods"),
    "ConfigMap": ("api/v1", "configmaps"),
    "Service": ("api/v1", "services"),
    "PersistentVolumeClaim": ("api/v1", "persistentvolumeclaims"),
    "Event": ("api/v1", "events"),
}
"""Path of each kind's group and version, and its plural."""

Body = dict[str, Any]


class KubeError(Exception):
    """The API server refused, or did not answer (code 0). `reason` is its own word, such as AlreadyExists."""

    def __init__(self, code: int, message: str, retry_after: float | None = None, reason: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after = retry_after
        self.reason = reason

    @property
    def exists_already(self) -> bool:
        """Whether the name is taken; other conflicts (a quota that another write changed) pass when tried again."""
        return self.code == 409 and self.reason == "AlreadyExists"


class Kube:
    """A client of one cluster."""

    def __init__(self) -> None:
        configuration = client.Configuration()
        try:
            config.load_incluster_config(client_configuration=configuration)
        except config.ConfigException:
            config.load_kube_config(config_file=os.environ.get("KUBECONFIG"), client_configuration=configuration)
        configuration.connection_pool_maxsize = CONNECTIONS
        configuration.retries = urllib3.Retry(total=0)
        self._client = client.ApiClient(configuration)
        self._threads = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="kube")

    async def create(self, body: Body, *, dry_run: bool = False) -> Body:
        """POST `body`, its fields checked strictly. Raise KubeError."""
        query: dict[str, Any] = {"fieldValidation": "Strict"}
        if dry_run:
            query["dryRun"] = "All"
        return await self._call("POST", _path(body["kind"], body["metadata"]["namespace"]), query, body)

    async def get(self, kind: str, namespace: str, name: str) -> Body | None:
        """The object, or None if there is none."""
        try:
            return await self._call("GET", f"{_path(kind, namespace)}/{name}", {}, None)
        except KubeError as error:
            if error.code == 404:
                return None
            raise

    async def list(self, kind: str, namespace: str | None, label: str = "", field: str = "") -> list[Body]:
        """Objects with such labels and fields; of all namespaces if `namespace` is None. As fresh as can be."""
        selectors = {"labelSelector": label, "fieldSelector": field}
        query = {name: selector for name, selector in selectors.items() if selector}
        return list((await self._call("GET", _path(kind, namespace), query, None))["items"])

    async def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete the object and, in the background, what it owns; nothing happens if it is gone."""
        body = {"propagationPolicy": "Background"}
        try:
            await self._call("DELETE", f"{_path(kind, namespace)}/{name}", {}, body)
        except KubeError as error:
            if error.code != 404:
                raise

    async def patch_status(self, namespace: str, name: str, version: int, patch: Body) -> Body:
        """Merge-patch a ColocatedRLJob's status; 409 unless `version` is its present resourceVersion."""
        body = {"metadata": {"resourceVersion": str(version)}, "status": patch}
        return await self._call("PATCH", f"{_path(names.KIND, namespace)}/{name}/status", {}, body)

    async def served_fields(self) -> set[str]:
        """Names of `spec` fields in the schema that the API server serves."""
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{names.PLURAL}.{names.GROUP}"
        crd = await self._call("GET", path, {}, None)
        served = next(v for v in crd["spec"]["versions"] if v["name"] == names.VERSION)
        return set(served["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"])

    async def _call(self, method: str, path: str, query: dict[str, Any], body: Body | None) -> Body:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, functools.partial(self._send, method, path, query, body))

    def _send(self, method: str, path: str, query: dict[str, Any], body: Body | None) -> Body:
        content = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Accept": "application/json", "Content-Type": content}
        try:
            request = self._client.param_serialize(
                method, path, query_params=list(query.items()), header_params=headers, body=body,
                auth_settings=["BearerToken"],
            )  # fmt: skip
            response = self._client.call_api(*request, _request_timeout=TIMEOUT_SECONDS)
            data = response.read()
        except (ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            raise KubeError(0, f"the API server does not answer: {type(error).__name__}") from error
        if not 200 <= response.status < 300:
            raise _kube_error(response.status, data, response.headers.get("Retry-After"))
        return dict(json.loads(data))


def _path(kind: str, namespace: str | None) -> str:
    group, plural = RESOURCES[kind]
    scope = f"/namespaces/{namespace}" if namespace else ""
    return f"/{group}{scope}/{plural}"


def _kube_error(status: int, data: bytes, retry_after: str | None) -> KubeError:
    try:
        told = json.loads(data)
        message, reason = str(told["message"]), str(told.get("reason") or "")
    except (ValueError, TypeError, KeyError, AttributeError):
        message, reason = data[:200].decode(errors="replace"), ""
    return KubeError(status, message, float(retry_after) if retry_after and retry_after.isdigit() else None, reason)
