"""Simulate thousands of nodes and pods with KWOK, which acts as their kubelet.

KWOK is the real program; the stages are defined here. A pod on a simulated node is Running and
Ready within a second, and removed when it is deleted.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import yaml

from tests.cluster.build import program
from tests.cluster.control_plane import ControlPlane

LABEL = "cockpit-test/simulated"
TAINT = {"key": LABEL, "value": "true", "effect": "NoSchedule"}
TOLERATION = {"key": LABEL, "operator": "Exists"}
_API = "kwok.x-k8s.io/v1alpha1"
_NOW = "{{ Now }}"


def start(plane: ControlPlane) -> None:
    """KWOK for every node that is labelled as simulated."""
    folder = plane.space.folder
    (folder / "kwok.yaml").write_text(
        "---\n".join(yaml.safe_dump(stage) for stage in (*_node_stages(), *_pod_stages()))
    )
    plane.space.start(
        "kwok",
        [
            program("kwok"),
            f"--kubeconfig={plane.kubeconfig}",
            f"--config={folder}/kwok.yaml",
            f"--manage-nodes-with-label-selector={LABEL}=true",
            "--cidr=10.200.0.0/16",
            f"--node-ip={plane.space.address}",
            "--server-address=127.0.0.1:10247",
            "--node-lease-duration-seconds=40",
        ],
        # KWOK reads a configuration in the home directory too, and would find the user's.
        environment={"KWOK_WORKDIR": str(folder), "HOME": str(folder)},
    )


def add_nodes(
    plane: ControlPlane, count: int, *, gpus: int = 8, prefix: str = "sim", tainted: bool = True
) -> None:
    """`sim-0` … `sim-N`, each with room for 110 pods, which need TOLERATION for tainted ones."""

    def add(number: int) -> None:
        name = f"{prefix}-{number}"
        room = {"cpu": "96", "memory": "768Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {LABEL: "true", "kubernetes.io/hostname": name},
                "annotations": {"kwok.x-k8s.io/node": "fake"},
            },
            "spec": {"taints": [TAINT] if tainted else []},
            "status": {"allocatable": room, "capacity": room},
        }
        plane.ask("POST", "/api/v1/nodes", node)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(count)))


def _node_stages() -> list[dict[str, Any]]:
    conditions = [
        _condition("Ready", "True", "KubeletReady"),
        _condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        _condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        _condition("PIDPressure", "False", "KubeletHasSufficientPID"),
    ]
    status = {
        "conditions": conditions,
        "addresses": [{"type": "InternalIP", "address": "{{ NodeIP }}"}],
        "nodeInfo": {
            "kubeletVersion": "v1.34.4-kwok",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
        "phase": "Running",
    }
    unready = {
        "key": '.status.conditions.[] | select( .type == "Ready" ) | .status',
        "operator": "NotIn",
        "values": ["True"],
    }
    return [_stage("node-initialize", "v1", "Node", [unready], status)]


def _pod_stages() -> list[dict[str, Any]]:
    alive = {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}
    no_address = {"key": ".status.podIP", "operator": "DoesNotExist"}
    running = """
conditions:
{{ $now := Now }}
{{ range $kind := list "Initialized" "Ready" "ContainersReady" }}
- {type: {{ $kind }}, status: "True", lastTransitionTime: {{ $now | Quote }}}
{{ end }}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
podIP: {{ PodIPWith .spec.nodeName false .metadata.uid .metadata.name .metadata.namespace | Quote }}
phase: Running
startTime: {{ $now | Quote }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: true
  started: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ end }}
initContainerStatuses:
{{ range .spec.initContainers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: true
  restartCount: 0
  state:
    terminated:
      exitCode: 0
      reason: Completed
      startedAt: {{ $now | Quote }}
      finishedAt: {{ $now | Quote }}
{{ end }}
"""
    going = {"key": ".metadata.deletionTimestamp", "operator": "Exists"}
    ready: dict[str, Any] = _stage("pod-ready", "v1", "Pod", [alive, no_address], running)
    delete: dict[str, Any] = _stage("pod-delete", "v1", "Pod", [going], None)
    delete["spec"]["next"] = {"finalizers": {"empty": True}, "delete": True}
    return [ready, delete]


def _stage(
    name: str, group: str, kind: str, when: list[dict[str, Any]], status: object
) -> dict[str, Any]:
    template = status if isinstance(status, str) else json.dumps(status)
    # A template's own quotes: `{{ Now }}` gives bare text.
    template = template.replace(f'"{_NOW}"', "{{ Now | Quote }}").replace(
        '"{{ NodeIP }}"', "{{ NodeIP | Quote }}"
    )
    return {
        "apiVersion": _API,
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": group, "kind": kind},
            "selector": {"matchExpressions": when},
            "next": {"statusTemplate": template},
        },
    }


def _condition(kind: str, status: str, reason: str) -> dict[str, str]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": "simulated",
        "lastHeartbeatTime": _NOW,
        "lastTransitionTime": _NOW,
    }
