"""How many more pods of a group the quotas of a namespace allow."""

from __future__ import annotations

from typing import Any

from cockpit.backends.kuberay.resources.quota import room
from cockpit.model.cluster import QuotaRoom


def cluster() -> dict[str, Any]:
    """Two groups; a pod of `gpu` has a sidecar and GPUs."""
    gpu = {
        "requests": {"cpu": "500m"},
        "limits": {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": 2},
    }
    sidecar = {"requests": {"cpu": "100m", "memory": "1Gi"}}
    groups: tuple[tuple[str, list[Any]], ...] = (
        ("cpu", [{}]),
        ("gpu", [{"resources": gpu}, {"resources": sidecar}]),
    )
    return {
        "spec": {
            "workerGroupSpecs": [
                {"groupName": name, "template": {"spec": {"containers": containers}}}
                for name, containers in groups
            ]
        }
    }


def quota(hard: dict[str, Any], used: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "team"},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": used},
    }


def left(hard: dict[str, Any], used: dict[str, Any], **spec: Any) -> tuple[QuotaRoom, ...]:
    return room(cluster(), [quota(hard, used, **spec)])


def test_resource_that_ends_first_decides_for_each_group() -> None:
    hard = {"pods": "10", "limits.memory": "20Gi", "requests.nvidia.com/gpu": "16"}
    used = {"pods": "4", "limits.memory": "9Gi", "requests.nvidia.com/gpu": "6"}
    assert left(hard, used) == (
        QuotaRoom("team", "cpu", "pods", 6),
        QuotaRoom("team", "gpu", "limits.memory", 2),
    )


def test_requests_of_all_containers_count_and_default_to_limits() -> None:
    assert left({"requests.cpu": "3"}, {"requests.cpu": "600m"})[0].pods == 4
    assert left({"memory": "11Gi"}, {"memory": "1Gi"})[0].pods == 2
    assert left({"cpu": "1"}, {"cpu": "1"})[0].pods == 0
    assert left({"pods": "2"}, {"pods": "5"})[0].pods == 0


def test_quota_of_other_things_or_with_a_scope_is_left_out() -> None:
    assert left({"count/secrets": "1"}, {"count/secrets": "1"}) == ()
    assert left({"pods": "1"}, {"pods": "1"}, scopes=["BestEffort"]) == ()


def test_objects_that_are_no_quota_are_ignored() -> None:
    assert room({}, [quota({"pods": "1"}, {})]) == ()
    assert room(cluster(), [{}, {"status": {"hard": {"pods": None}}}, {"spec": None}])[0].pods == 0
