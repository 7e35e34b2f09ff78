"""The facts of an object that are compared: the same for a recording and a live object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

State = dict[str, Any]
"""Plain values by name; lists and dictionaries are compared as a unit."""

_COUNTS = ("desired", "available", "ready", "min", "max")
_LABELS = {
    "ray.io/node-type": "role",
    "ray.io/group": "group",
    "ray.io/worker-group-replica-index": "index",
    "ray.io/replica-host-index": "host",
}


@dataclass(frozen=True, slots=True)
class Fact:
    """One change of one object."""

    t: float
    """Seconds since the start."""
    of: str
    """`cluster`, `pod NAME`, `service NAME` or `event`."""
    change: State
    """The differences from before; None: no longer present. `is`: added or deleted."""


class Reader:
    """Turns watch events into facts."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._before: dict[str, State] = {}

    def read(self, t: float, kind: str, item: dict[str, Any]) -> Fact | None:
        """`kind` is that of the watch event. None: no fact has changed."""
        what, name = item["kind"], item["metadata"]["name"]
        if what == "Event":
            return self._event(t, item) if kind == "ADDED" else None
        if what == "RayCluster":
            of, state = "cluster", cluster_state(item)
        elif what == "Pod":
            of, state = f"pod {name}", pod_state(item)
        else:
            of, state = f"service {name}", {}
        if name != self._cluster and not name.startswith(f"{self._cluster}-"):
            return None
        if kind == "DELETED":
            self._before.pop(of, None)
            return Fact(t, of, {"is": "deleted"})
        before = self._before.get(of)
        self._before[of] = state
        change = difference(before or {}, state)
        if before is None:
            change = {"is": "added", **change}
        return Fact(t, of, change) if change else None

    def _event(self, t: float, item: dict[str, Any]) -> Fact | None:
        about = item["involvedObject"]
        if about["kind"] != "RayCluster" or about["name"] != self._cluster:
            return None
        if item.get("reportingComponent") != "raycluster-controller":
            return None
        return Fact(
            t,
            "event",
            {
                "reason": item["reason"],
                "type": item["type"],
                "action": item["action"],
                "message": item["message"],
            },
        )


def difference(before: State, after: State) -> State:
    return {
        name: after.get(name) for name in {**before, **after} if before.get(name) != after.get(name)
    }


def cluster_state(item: dict[str, Any]) -> State:
    spec, status = item["spec"], item.get("status", {})
    state: State = {
        "suspend": spec.get("suspend"),
        "groups": {
            group["groupName"]: {
                "replicas": group.get("replicas"),
                "workersToDelete": (group.get("scaleStrategy") or {}).get("workersToDelete"),
            }
            for group in spec.get("workerGroupSpecs", ())
        },
    }
    for name in _COUNTS:
        state[f"{name}WorkerReplicas"] = status.get(f"{name}WorkerReplicas")
    for name in ("state", "desiredCPU", "desiredMemory", "desiredGPU", "desiredTPU", "endpoints"):
        state[name] = status.get(name)
    for condition in status.get("conditions", ()):
        state[condition["type"]] = f"{condition['status']} {condition['reason']}"
    head = status.get("head") or {}
    state["head.podName"] = head.get("podName")
    state["head.serviceName"] = head.get("serviceName")
    for name in ("podIP", "serviceIP"):
        state[f"head.{name}"] = "set" if head.get(name) else None
    state["states"] = sorted(status.get("stateTransitionTimes") or ()) or None
    # Only reported along with another change, so that its steps mean little.
    state["observed"] = status.get("observedGeneration")
    return {name: value for name, value in state.items() if value is not None}


def pod_state(item: dict[str, Any]) -> State:
    meta, status = item["metadata"], item.get("status", {})
    labels = meta.get("labels", {})
    state: State = {short: labels[name] for name, short in _LABELS.items() if name in labels}
    state["phase"] = status.get("phase")
    for condition in status.get("conditions", ()):
        if condition["type"] == "Ready":
            state["ready"] = _words(condition["status"], condition.get("reason"))
    state["address"] = "set" if status.get("podIP") else None
    state["grace_s"] = meta.get("deletionGracePeriodSeconds")
    for kind in ("containerStatuses", "initContainerStatuses"):
        for container in status.get(kind, ()):
            state[container["name"]] = _container(container)
    return {name: value for name, value in state.items() if value is not None}


def _container(status: dict[str, Any]) -> str:
    (kind, detail), *_ = status["state"].items()
    exit_code = f"exit {detail['exitCode']}" if kind == "terminated" else None
    restarts = f"restarts {status['restartCount']}" if status["restartCount"] else None
    return _words(kind, exit_code, detail.get("reason"), restarts)


def _words(*parts: str | None) -> str:
    return " ".join(part for part in parts if part)
