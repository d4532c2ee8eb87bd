"""What the operator is told by its environment; the chart sets it."""

from collections.abc import Mapping
from dataclasses import dataclass

DEFAULT_CLUSTER_DOMAIN = "cluster.local"


@dataclass(frozen=True)
class Settings:
    """The operator's own configuration."""

    runtime_image: str
    """Image of jobs that name none."""
    namespaces: tuple[str, ...]
    """Watched; empty: all."""
    cluster_domain: str = DEFAULT_CLUSTER_DOMAIN
    liveness_port: int = 8080
    metrics_port: int = 9090


def from_environment(env: Mapping[str, str]) -> Settings:
    """Settings from COLOCATED_* variables. Raise SystemExit where the runtime's image is not said."""
    image = env.get("COLOCATED_RUNTIME_IMAGE", "")
    if not image:
        raise SystemExit("COLOCATED_RUNTIME_IMAGE is not set: the image of jobs that name none (chart: runtimeImage)")
    return Settings(
        runtime_image=image,
        namespaces=tuple(name.strip() for name in env.get("COLOCATED_NAMESPACES", "").split(",") if name.strip()),
        cluster_domain=env.get("COLOCATED_CLUSTER_DOMAIN", DEFAULT_CLUSTER_DOMAIN),
        liveness_port=int(env.get("COLOCATED_LIVENESS_PORT", "8080")),
        metrics_port=int(env.get("COLOCATED_METRICS_PORT", "9090")),
    )
