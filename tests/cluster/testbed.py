"""The complete test cluster: as much of it as is requested, and all of it removed at the end."""

from __future__ import annotations

import os
import sys
import urllib.error
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tests.cluster import crds, kwok, module_crds, node
from tests.cluster.control_plane import ControlPlane
from tests.cluster.space import Space

OPERATOR = os.environ.get("KUBERAY_OPERATOR", "")
"""The binary of a KubeRay operator, used instead of the fake. Read at import."""
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


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
        pods, `operator` the one for RayClusters and RayJobs. With `keep` it outlives this process,
        and with `aggregated` others may serve APIs of it. `real_definitions` are those of KubeRay.

        `images` are names of images that the node has, with the programs of this machine.
        """
        space = Space.open(keep=keep)
        try:
            plane = ControlPlane.start(space, aggregated=aggregated)
            kuberay = operator and bool(OPERATOR)
            definitions = _definitions(real=real_definitions, kuberay=kuberay)
            for definition in definitions:
                plane.ask("POST", _DEFINITIONS, definition)
            if real:
                node.start(plane, images)
            if simulated:
                kwok.start(plane)
            for definition in definitions:
                plane.wait_for(f"/apis/ray.io/v1/{definition['spec']['names']['plural']}")
            if kuberay:
                start_kuberay(plane)
            elif operator:
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


def _definitions(*, real: bool, kuberay: bool) -> list[dict[str, Any]]:
    """With all kinds for `kuberay`: its operator ends after two minutes without one of them."""
    if not kuberay:
        return crds.real() if real else crds.crds()
    found = crds.real()
    names = {each["metadata"]["name"] for each in found}
    others = module_crds.rayservices_and_cronjobs()
    return [*found, *(each for each in others if each["metadata"]["name"] not in names)]


def start_kuberay(plane: ControlPlane) -> None:
    argv = [OPERATOR, "--enable-leader-election=false"]
    argv += ["--metrics-addr=127.0.0.1:18080", "--health-probe-bind-address=127.0.0.1:18081"]
    argv += ["--feature-gates=RayCronJob=true"]
    argv += ["--use-kubernetes-proxy"]  # it is no pod, and knows no name of a Service
    plane.space.start("operator", argv, {"KUBECONFIG": str(plane.kubeconfig)})


def start_operator(plane: ControlPlane) -> None:
    argv = [sys.executable, "-m", "tests.cluster.operator"]
    argv += ["--kubeconfig", str(plane.kubeconfig)]
    plane.space.start("operator", argv, {"PYTHONPATH": str(Path(__file__).parents[2])})
