"""The complete test cluster: as much of it as is requested, and all of it removed at the end."""

from __future__ import annotations

import os
import sys
import urllib.error
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tests.cluster import crds, kwok, node
from tests.cluster.control_plane import ControlPlane
from tests.cluster.space import Space

OPERATOR = os.environ.get("KUBERAY_OPERATOR", "")
"""The binary of the real operator, used instead of the fake. Read at import."""


@dataclass(frozen=True, slots=True)
class Testbed:
    plane: ControlPlane
    __test__: ClassVar[bool] = False
    """pytest takes a class of this name for tests."""

    @classmethod
    def up(
        cls,
        *,
        simulated: bool = False,
        real: bool = False,
        operator: bool = False,
        keep: bool = False,
        aggregated: bool = False,
        real_definitions: bool = False,
        images: Sequence[str] = (),
    ) -> Testbed:
        """The control plane with KubeRay's kinds; `simulated` adds KWOK, `real` a node that runs
        pods, `operator` the one for RayClusters. With `keep` it outlives this process, and with
        `aggregated` others may serve APIs of it. `real_definitions` are those of KubeRay.

        `images` are names of images that the node has, with the programs of this machine.
        """
        space = Space.open(keep=keep)
        try:
            plane = ControlPlane.start(space, aggregated=aggregated)
            for definition in crds.real() if real_definitions else crds.crds():
                plane.ask(
                    "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition
                )
            if real:
                node.start(plane, images)
            if simulated:
                kwok.start(plane)
            plane.wait_for("/apis/ray.io/v1/rayclusters")
            plane.wait_for("/apis/ray.io/v1/rayjobs")
            if operator:
                start_operator(plane)
        except BaseException:
            space.close()
            raise
        return cls(plane)

    @property
    def kubeconfig(self) -> Path:
        return self.plane.kubeconfig

    def namespace(self, name: str) -> str:
        """Make it, and wait until pods can be made in it. Returns the name."""
        try:
            self.plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise
        self.plane.wait_for(f"/api/v1/namespaces/{name}/serviceaccounts/default")
        return name

    def down(self) -> None:
        self.plane.space.close()


def start_operator(plane: ControlPlane) -> None:
    """Ours, or the real one where KUBERAY_OPERATOR names it."""
    if OPERATOR:
        argv = [OPERATOR, "--enable-leader-election=false", "--metrics-addr=127.0.0.1:18080"]
        argv += ["--health-probe-bind-address=127.0.0.1:18081"]
        argv += ["--use-kubernetes-proxy"]  # it is no pod, and knows no name of a Service
        plane.space.start("operator", argv, {"KUBECONFIG": str(plane.kubeconfig)})
    else:
        argv = [
            sys.executable,
            "-m",
            "tests.cluster.operator",
            "--kubeconfig",
            str(plane.kubeconfig),
        ]
        plane.space.start("operator", argv, {"PYTHONPATH": str(Path(__file__).parents[2])})
