"""Ray Serve: applications, their deployments, and the replicas of these."""

from __future__ import annotations

from msgspec import Struct


def serve_key(app: str, deployment: str) -> str:
    """Identifies a deployment: the names of deployments are unique within an application."""
    return f"{app}/{deployment}"


class Replica(Struct, frozen=True):
    """One actor of a deployment."""

    id: str
    state: str
    """As Ray has it: `STARTING`, `RUNNING`, `STOPPING`, …"""
    node_ip: str = ""
    pid: int = 0
    started_s: float | None = None
    log: str = ""
    """Relative to the log directory of its node."""


class Deployment(Struct, frozen=True):
    app: str
    name: str
    status: str
    """As Ray has it: `HEALTHY`, `UPDATING`, `UNHEALTHY`, `DEPLOY_FAILED`, …"""
    message: str = ""
    route: str = ""
    """The route of its application, if it is the one that takes its requests."""
    app_status: str = ""
    deployed_s: float | None = None
    target: int = 0
    """The wanted number of replicas."""
    bounds: tuple[int, int] | None = None
    """The fewest and the most replicas, if it is scaled automatically."""
    replicas: tuple[Replica, ...] = ()

    @property
    def key(self) -> str:
        return serve_key(self.app, self.name)

    @property
    def running(self) -> int:
        return sum(replica.state == "RUNNING" for replica in self.replicas)


class ServeLoad(Struct, frozen=True):
    """The requests of a deployment over the last minute, as Prometheus has them."""

    app: str
    deployment: str
    requests_per_s: float | None = None
    errors_per_s: float | None = None
    p50_s: float | None = None
    p99_s: float | None = None

    @property
    def key(self) -> str:
        return serve_key(self.app, self.deployment)
