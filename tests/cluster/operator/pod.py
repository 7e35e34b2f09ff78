"""A pod as the operator reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.cluster.operator.api import Object

REPLICA_INDEX = "ray.io/worker-group-replica-index"
REPLICA_NAME = "ray.io/worker-group-replica-name"
HOST_INDEX = "ray.io/replica-host-index"


@dataclass(frozen=True, slots=True)
class Terminated:
    exit_code: int
    reason: str
    started: str
    finished: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """The first container that waits or has ended."""

    container: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Ready:
    """The pod's condition of this name."""

    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Pod:
    name: str
    namespace: str
    head: bool
    group: str
    phase: str
    ready: Ready | None
    ip: str
    restart_policy: str
    ended: Terminated | None
    """How Ray's container ended, while it has."""
    waiting: Waiting | None
    going: bool
    replica_index: int | None
    replica_name: str

    @property
    def running_and_ready(self) -> bool:
        return self.phase == "Running" and self.ready is not None and self.ready.status == "True"

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"


def parse(item: Object) -> Pod:
    meta, status = item["metadata"], item.get("status", {})
    labels: Mapping[str, str] = meta.get("labels", {})
    index = labels.get(REPLICA_INDEX, "")
    states = status.get("containerStatuses", [])
    return Pod(
        name=meta["name"],
        namespace=meta["namespace"],
        head=labels.get("ray.io/node-type") == "head",
        group=labels.get("ray.io/group", ""),
        phase=status.get("phase", ""),
        ready=_ready(status),
        ip=status.get("podIP", ""),
        restart_policy=item["spec"].get("restartPolicy", "Always"),
        ended=_ended(item["spec"]["containers"][0]["name"], states),
        waiting=_waiting(states),
        going="deletionTimestamp" in meta,
        replica_index=int(index) if index.isdigit() else None,
        replica_name=labels.get(REPLICA_NAME, ""),
    )


def _ready(status: Mapping[str, Any]) -> Ready | None:
    for condition in status.get("conditions", ()):
        if condition["type"] == "Ready":
            return Ready(
                condition["status"], condition.get("reason", ""), condition.get("message", "")
            )
    return None


def _ended(ray: str, states: list[dict[str, Any]]) -> Terminated | None:
    for state in states:
        ended = state.get("state", {}).get("terminated")
        if state["name"] == ray and ended:
            return Terminated(
                ended.get("exitCode", 0),
                ended.get("reason", ""),
                ended.get("startedAt") or "",
                ended.get("finishedAt") or "",
            )
    return None


def _waiting(states: list[dict[str, Any]]) -> Waiting | None:
    for state in states:
        text = state.get("state", {})
        for kind in ("waiting", "terminated"):
            if kind in text:
                why = text[kind]
                return Waiting(state["name"], why.get("reason", ""), why.get("message", ""))
    return None
