"""What the chart makes of its values, by Helm itself (needs `helm` in PATH)."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from colocated_operator.settings import from_environment
from colocated_runtime.contract.names import LABEL_JOB_UID, REPORT_PORT
from colocated_runtime.contract.schema import custom_resource_definition

CHART = Path(__file__).parents[3] / "charts/colocated-operator"
# Helm built from source takes the cluster for an old one where it is not told.
TEMPLATE = ("helm", "template", "release", str(CHART), "--namespace", "system", "--kube-version", "1.34.0")


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*TEMPLATE, *arguments], capture_output=True, text=True, timeout=60)


def objects(*arguments: str) -> list[dict[str, Any]]:
    done = helm(*arguments)
    assert done.returncode == 0, done.stderr
    return [made for made in yaml.safe_load_all(done.stdout) if made]


def of_kind(kind: str, *arguments: str) -> list[dict[str, Any]]:
    return [made for made in objects(*arguments) if made["kind"] == kind]


def allowed(role: dict[str, Any]) -> set[tuple[str, str]]:
    """Every (resource, verb) of a role."""
    return {(what, verb) for rule in role["rules"] for what in rule["resources"] for verb in rule["verbs"]}


def test_lint_finds_nothing() -> None:
    done = subprocess.run(["helm", "lint", "--strict", str(CHART)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_crd_is_the_generated_one_and_kept() -> None:
    (crd,) = of_kind("CustomResourceDefinition")
    assert crd["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert crd == custom_resource_definition()


def test_crd_goes_with_the_release_if_asked() -> None:
    (crd,) = of_kind("CustomResourceDefinition", "--set", "crds.keep=false")
    assert crd == custom_resource_definition()


def test_a_private_registry_needs_secrets() -> None:
    (made,) = of_kind("Deployment", "--set", "imagePullSecrets[0].name=registry")
    assert made["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    (made,) = of_kind("Deployment")
    assert "imagePullSecrets" not in made["spec"]["template"]["spec"]


def test_crd_can_be_left_to_others() -> None:
    assert of_kind("CustomResourceDefinition", "--set", "crds.install=false") == []


def test_whole_cluster_takes_one_cluster_role() -> None:
    (role,) = of_kind("ClusterRole")
    assert ("jobs", "create") in allowed(role)
    assert of_kind("Role") == []


def test_rights_are_the_few_that_are_used() -> None:
    (role,) = of_kind("ClusterRole")
    rights = allowed(role)
    assert {verb for what, verb in rights if what == "colocatedrljobs"} == {"get", "list", "watch"}
    assert {verb for what, verb in rights if what == "colocatedrljobs/status"} == {"patch"}
    assert {verb for what, verb in rights if what == "events"} == {"create", "list"}
    assert {what for what, _ in rights}.isdisjoint({"secrets", "pods/log", "pods/exec", "nodes", "namespaces", "*"})
    assert "*" not in {verb for _, verb in rights}
    (crds,) = (rule for rule in role["rules"] if "customresourcedefinitions" in rule["resources"])
    assert (crds["verbs"], crds["resourceNames"]) == (["get"], ["colocatedrljobs.rl.colocated.dev"])


def test_list_of_namespaces_takes_a_role_in_each_and_nothing_cluster_wide() -> None:
    namespaces = ("--set", "watchNamespaces={team-a,team-b}")
    (cluster_role,) = of_kind("ClusterRole", *namespaces)
    assert allowed(cluster_role) == {("customresourcedefinitions", "get")}
    roles, bindings = of_kind("Role", *namespaces), of_kind("RoleBinding", *namespaces)
    assert [role["metadata"]["namespace"] for role in roles] == ["team-a", "team-b"]
    assert [binding["metadata"]["namespace"] for binding in bindings] == ["team-a", "team-b"]
    (wide,) = of_kind("ClusterRole")
    assert all(allowed(role) | allowed(cluster_role) == allowed(wide) for role in roles)
    assert {binding["subjects"][0]["namespace"] for binding in bindings} == {"system"}


@pytest.mark.parametrize("namespaces", [(), ("team-a", "team-b")])
def test_operator_understands_its_environment(namespaces: tuple[str, ...]) -> None:
    (deployment,) = of_kind("Deployment", "--set-json", f"watchNamespaces={json.dumps(namespaces)}")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    settings = from_environment({entry["name"]: entry["value"] for entry in container["env"]})
    assert settings.namespaces == namespaces
    assert settings.runtime_image == "localhost/colocated-runtime:0.1.0"
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"liveness": settings.liveness_port, "metrics": settings.metrics_port}


def test_pod_is_restricted() -> None:
    (deployment,) = of_kind("Deployment")
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]) == (1, {"type": "Recreate"})
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_network_policy_opens_the_reports_of_jobs() -> None:
    (policy,) = of_kind("NetworkPolicy", "--set", "networkPolicy.apiServerPorts={8443}")
    (reports,) = (rule for rule in policy["spec"]["egress"] if "to" in rule)
    assert reports["ports"] == [{"port": REPORT_PORT, "protocol": "TCP"}]
    (expression,) = reports["to"][0]["podSelector"]["matchExpressions"]
    assert expression["key"] == LABEL_JOB_UID
    assert {"port": 8443, "protocol": "TCP"} in [port for rule in policy["spec"]["egress"] for port in rule["ports"]]
    assert of_kind("NetworkPolicy", "--set", "networkPolicy.enabled=false") == []


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ("runtimeImage=", "runtimeImage"),
        ("watchNamespaces=team-a", "watchNamespaces"),
        ("watchNamespaces={Team}", "watchNamespaces"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("crds.instal=false", "instal"),
        ("replicas=2", "replicas"),
    ],
)
def test_wrong_value_is_refused_by_name(setting: str, field: str) -> None:
    done = helm("--set", setting)
    assert done.returncode != 0
    assert field in done.stderr
