"""KubeRay's custom resource definitions for the API server.

These are simplified: fields are typed if a wrong type would matter. The real ones are in the folder
`kuberay`. KUBERAY_CRDS names a folder of other real ones, which every test cluster then uses.
"""

from __future__ import annotations

import lzma
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

REAL = os.environ.get("KUBERAY_CRDS", "")
"""Read when the module is imported."""

KUBERAY = Path(__file__).parent / "kuberay"
"""The unchanged definitions of KubeRay 1.7 (Apache License 2.0), compressed."""

_OPEN: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_INTEGER = {"type": "integer", "format": "int32"}
_TEMPLATE = {
    "template": _OPEN,
    "rayStartParams": {"type": "object", "additionalProperties": {"type": "string"}},
}
_GROUP: dict[str, Any] = {
    **_OPEN,
    "required": ["groupName", "maxReplicas", "minReplicas", "template"],
    "properties": {
        **_TEMPLATE,
        "groupName": {"type": "string"},
        "replicas": {**_INTEGER, "default": 0},
        "minReplicas": {**_INTEGER, "default": 0},
        "maxReplicas": {**_INTEGER, "default": 2147483647},
        "numOfHosts": {**_INTEGER, "default": 1},
        "idleTimeoutSeconds": _INTEGER,
        "suspend": {"type": "boolean"},
        "scaleStrategy": {
            "type": "object",
            "properties": {"workersToDelete": {"type": "array", "items": {"type": "string"}}},
        },
    },
}
_CLUSTER_SPEC: dict[str, Any] = {
    **_OPEN,
    "required": ["headGroupSpec"],
    "properties": {
        "rayVersion": {"type": "string"},
        "suspend": {"type": "boolean"},
        "enableInTreeAutoscaling": {"type": "boolean"},
        "headGroupSpec": {**_OPEN, "required": ["template"], "properties": _TEMPLATE},
        "workerGroupSpecs": {"type": "array", "items": _GROUP},
    },
}
_CLUSTER_STATUS: dict[str, Any] = {
    **_OPEN,
    "properties": {
        "state": {"type": "string"},
        "desiredWorkerReplicas": _INTEGER,
        "availableWorkerReplicas": _INTEGER,
        "readyWorkerReplicas": _INTEGER,
        "minWorkerReplicas": _INTEGER,
        "maxWorkerReplicas": _INTEGER,
    },
}
_JOB_SPEC: dict[str, Any] = {
    **_OPEN,
    "properties": {
        "entrypoint": {"type": "string"},
        "jobId": {"type": "string"},
        "runtimeEnvYAML": {"type": "string"},
        "submissionMode": {"type": "string", "default": "K8sJobMode"},
        "shutdownAfterJobFinishes": {"type": "boolean"},
        "suspend": {"type": "boolean"},
        "ttlSecondsAfterFinished": {**_INTEGER, "default": 0},
        "activeDeadlineSeconds": _INTEGER,
        "backoffLimit": {**_INTEGER, "default": 0},
        "clusterSelector": {"type": "object", "additionalProperties": {"type": "string"}},
        "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
        "rayClusterSpec": _CLUSTER_SPEC,
    },
}


_CLUSTER_COLUMNS = (
    ("desired workers", "integer", ".status.desiredWorkerReplicas"),
    ("available workers", "integer", ".status.availableWorkerReplicas"),
    ("cpus", "string", ".status.desiredCPU"),
    ("memory", "string", ".status.desiredMemory"),
    ("gpus", "string", ".status.desiredGPU"),
    ("status", "string", ".status.state"),
    ("age", "date", ".metadata.creationTimestamp"),
)
_JOB_COLUMNS = (
    ("job status", "string", ".status.jobStatus"),
    ("deployment status", "string", ".status.jobDeploymentStatus"),
    ("ray cluster name", "string", ".status.rayClusterName"),
    ("start time", "string", ".status.startTime"),
    ("end time", "string", ".status.endTime"),
    ("age", "date", ".metadata.creationTimestamp"),
)


def crds() -> list[dict[str, Any]]:
    """The definitions to apply, ready to be posted."""
    return real() if REAL else ours()


def real() -> list[dict[str, Any]]:
    """Those of the folder that KUBERAY_CRDS names, or of KubeRay 1.7."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # they are 2 MB: 0.6 s, or 9 s
    texts = (
        [path.read_text() for path in sorted(Path(REAL).glob("*.yaml"))]
        if REAL
        else [lzma.decompress(path.read_bytes()).decode() for path in sorted(KUBERAY.iterdir())]
    )
    return [yaml.load(text, loader) for text in texts]


def ours() -> list[dict[str, Any]]:
    return [
        _definition("RayCluster", "rayclusters", _CLUSTER_SPEC, _CLUSTER_STATUS, _CLUSTER_COLUMNS),
        _definition("RayJob", "rayjobs", _JOB_SPEC, _OPEN, _JOB_COLUMNS),
    ]


def _definition(
    kind: str,
    plural: str,
    spec: dict[str, Any],
    status: dict[str, Any],
    columns: Sequence[tuple[str, str, str]],
) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.ray.io"},
        "spec": {
            "group": "ray.io",
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
            },
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": name, "type": of, "jsonPath": path} for name, of, path in columns
                    ],
                }
            ],
        },
    }
