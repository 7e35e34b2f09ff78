"""Objects of a kustomization, as kustomize builds them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.build import program

FOLDER = Path(__file__).parents[2] / "manifests" / "kubernetes"
MONITORING = FOLDER.parent / "monitoring"
OVERLAYS = tuple(sorted(folder.name for folder in (FOLDER / "overlays").iterdir()))
STORAGE = tuple(sorted(folder.name for folder in (FOLDER / "components").glob("storage-*")))
IMAGE = "cockpit-train:0.1.0"

Object = dict[str, Any]


@cache
def build(folder: Path) -> tuple[Object, ...]:
    """Raises CalledProcessError if kustomize refuses the folder."""
    command = [str(program("kustomize")), "build", str(folder)]
    built = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return tuple(yaml.safe_load_all(built))


def overlay(name: str) -> tuple[Object, ...]:
    return build(FOLDER / "overlays" / name)


def with_component(*names: str, folder: Path, overlay: str = "cpu") -> tuple[Object, ...]:
    """The overlay in a copy of the manifests in `folder`, with components added to its own list.

    The order counts: as the pages describe it, they are after those that the overlay has.
    """
    copied = folder / "manifests"
    shutil.copytree(FOLDER.parent, copied)
    file = copied / FOLDER.name / "overlays" / overlay / "kustomization.yaml"
    kustomization = yaml.safe_load(file.read_text())
    added = [f"../../components/{name}" for name in names]
    kustomization["components"] = [*kustomization.get("components", ()), *added]
    file.write_text(yaml.safe_dump(kustomization))
    return build(file.parent)


def one(objects: tuple[Object, ...], kind: str, name: str | None = None) -> Object:
    """The only object of the kind, or the one of the name."""
    [found] = [each for each in of_kind(objects, kind) if name in (None, name_of(each))]
    return found


def of_kind(objects: tuple[Object, ...], kind: str) -> list[Object]:
    return [each for each in objects if each["kind"] == kind]


def name_of(each: Object) -> str:
    return str(each["metadata"]["name"])


def ray_groups(objects: tuple[Object, ...]) -> list[Object]:
    """The head and each worker group of the RayCluster."""
    spec = one(objects, "RayCluster")["spec"]
    return [spec["headGroupSpec"], *spec["workerGroupSpecs"]]


def pod_labels(group: Object) -> Mapping[str, str]:
    """The labels that KubeRay gives to the pods of a group of the RayCluster `demo`."""
    worker = "groupName" in group
    kind = "worker" if worker else "head"
    return {"ray.io/cluster": "demo", "ray.io/node-type": kind, "ray.io/is-ray-node": "yes"}
