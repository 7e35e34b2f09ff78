"""Custom resource definitions of Kueue, Volcano, KubeRay and the Prometheus operator, from their Go
modules.
"""

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
VOLCANO = "volcano.sh/volcano"
PROMETHEUS_OPERATOR = "github.com/prometheus-operator/prometheus-operator"
KUBERAY = "github.com/ray-project/kuberay/ray-operator"
_FILES = ("workloads", "localqueues", "clusterqueues")
NEWER = "v1beta2"


@cache
def module(name: str = KUEUE, pinned_by: str = "kueue") -> Path:
    """The module's folder in Go's cache, downloaded if it is not there.

    The go.mod in the folder `pinned_by` of `modules` has its version.
    """
    done = subprocess.run(
        ["go", "mod", "download", "-json", name],
        cwd=MODULES / pinned_by,
        env=os.environ | {"GOFLAGS": "-mod=readonly"},
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(json.loads(done.stdout)["Dir"])


def kueue() -> list[dict[str, Any]]:
    """The definitions of v1beta1; served as v1beta2 too, as newer Kueues do."""
    folder = module() / "config" / "components" / "crd" / "bases"
    found = [_read(folder / f"kueue.x-k8s.io_{name}.yaml") for name in _FILES]
    for crd in found:
        newer = copy.deepcopy(crd["spec"]["versions"][0])
        crd["spec"]["versions"].append(newer | {"name": NEWER, "storage": False})
    return found


def volcano() -> list[dict[str, Any]]:
    """PodGroups and Queues of v1beta1."""
    folder = module(VOLCANO, "crds") / "config/crd/volcano/bases"
    return [
        _read(folder / f"scheduling.volcano.sh_{name}.yaml") for name in ("podgroups", "queues")
    ]


def rayservices_and_cronjobs() -> list[dict[str, Any]]:
    """Kinds of KubeRay whose definitions are not among those of `crds`."""
    folder = module(KUBERAY, "crds") / "config/crd/bases"
    return [_read(folder / f"ray.io_{name}.yaml") for name in ("rayservices", "raycronjobs")]


def monitors_and_rules() -> list[dict[str, Any]]:
    """The kinds of the Prometheus operator that the manifests use."""
    folder = module(PROMETHEUS_OPERATOR, "crds") / "example/prometheus-operator-crd"
    names = ("podmonitors", "prometheusrules", "servicemonitors")
    return [_read(folder / f"monitoring.coreos.com_{name}.yaml") for name in names]


def _read(path: Path) -> dict[str, Any]:
    made: dict[str, Any] = yaml.load(
        path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    )
    return made
