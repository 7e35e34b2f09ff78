"""The manifests are what Kubernetes takes, and of the Ray that is installed."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from cockpit.model.recovery import FAST

ROOT = Path(__file__).parents[1]


@pytest.fixture
def cluster() -> Any:
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with Ray: the [train] extra")
    [document] = yaml.safe_load_all((ROOT / "manifests/kubernetes/raycluster.yaml").read_text())
    return document


def ray_version() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [pin] = [item for item in project["optional-dependencies"]["train"] if item.startswith("ray[")]
    return str(pin.partition("==")[2])


def test_the_manifest_names_the_pinned_ray_everywhere(cluster: Any) -> None:
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    spec = cluster["spec"]
    assert spec["rayVersion"] == ray_version()
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        for container in group["template"]["spec"]["containers"]:
            assert container["image"] == f"rayproject/ray:{ray_version()}"


def test_the_groups_are_within_their_bounds_and_the_cluster_asks_for_a_token(cluster: Any) -> None:
    for group in cluster["spec"]["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    assert cluster["spec"]["authOptions"]["mode"] == "token"


def test_every_pod_has_the_settings_of_the_fast_recovery_profile(cluster: Any) -> None:
    spec = cluster["spec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        (ray,) = group["template"]["spec"]["containers"]
        environment = {item["name"]: item["value"] for item in ray["env"]}
        assert FAST.pod_env.items() <= environment.items()
