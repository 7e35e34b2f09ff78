"""The manifests are what Kubernetes takes, and of the Ray that is installed."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from cockpit.model.recovery import FAST

ROOT = Path(__file__).parents[1]


@pytest.fixture
def cluster() -> Any:
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


def test_every_permission_is_in_the_page_about_security() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    role, listed = "", set()
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and "`" in cells[1] and cells[2].replace(", ", "").isalpha():
            role = cells[0].strip("`") or role
            verbs = tuple(cells[2].split(", "))
            group, _, resources = cells[1].rpartition(": ")
            for resource in resources.partition("`, by name")[0].split(", "):
                listed.add((role, group.strip("`"), resource.strip("`"), verbs))
    rules = {
        (document["metadata"]["name"], group, resource, tuple(rule["verbs"]))
        for document in yaml.safe_load_all(
            (ROOT / "manifests" / "kubernetes" / "rbac.yaml").read_text()
        )
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert listed == rules
