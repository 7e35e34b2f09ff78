"""The custom resource definitions of Kueue, from its Go module, and small ones for Volcano."""

from __future__ import annotations

import copy
import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.build import MODULES

KUEUE = "sigs.k8s.io/kueue"
_FILES = ("workloads", "localqueues", "clusterqueues")
NEWER = "v1beta2"


@cache
def module() -> Path:
    """The module's folder in Go's cache, downloaded if it is not there; `modules/kueue` pins it."""
    done = subprocess.run(
        ["go", "mod", "download", "-json", KUEUE],
        cwd=MODULES / "kueue",
        env=os.environ | {"GOFLAGS": "-mod=readonly"},
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(json.loads(done.stdout)["Dir"])


def kueue() -> list[dict[str, Any]]:
    """The definitions of v1beta1; served as v1beta2 too, as newer Kueues do."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    folder = module() / "config" / "components" / "crd" / "bases"
    found = [
        yaml.load((folder / f"kueue.x-k8s.io_{name}.yaml").read_text(), loader) for name in _FILES
    ]
    for crd in found:
        newer = copy.deepcopy(crd["spec"]["versions"][0])
        crd["spec"]["versions"].append(newer | {"name": NEWER, "storage": False})
    return found


def volcano() -> list[dict[str, Any]]:
    """PodGroups and Queues of scheduling.volcano.sh/v1beta1, with any fields."""
    return [_open("PodGroup", "podgroups", "Namespaced"), _open("Queue", "queues", "Cluster")]


def _open(kind: str, plural: str, scope: str) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    group = "scheduling.volcano.sh"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": "v1beta1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                }
            ],
        },
    }
