"""Objects as a real operator left them, and broken variants of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cockpit.backends.kuberay.resources import objects
from cockpit.backends.kuberay.resources.raycluster import RayCluster, ray_cluster
from cockpit.model.cluster import Pod

FOLDER = Path(__file__).parent / "recorded"


@dataclass
class Moment:
    """The raw objects may be changed by a test: they are its own."""

    raw: dict[str, Any]
    raw_pods: list[dict[str, Any]]

    @classmethod
    def of(cls, name: str) -> Moment:
        document = json.loads((FOLDER / f"{name}.json").read_text())
        return cls(document["cluster"], document["pods"])

    @property
    def cluster(self) -> RayCluster:
        return ray_cluster(self.raw)

    @property
    def pods(self) -> list[Pod]:
        return [objects.pod(raw) for raw in self.raw_pods]

    @property
    def workers(self) -> list[Pod]:
        return [pod for pod in self.pods if pod.group == "gpu"]

    @property
    def group(self) -> dict[str, Any]:
        found: dict[str, Any] = self.raw["spec"]["workerGroupSpecs"][0]
        return found
