"""Health from pods and conditions, on recorded states.

In all but the first few, the operator's `status.state` is `ready`.
"""

from __future__ import annotations

import pytest

from cockpit.backends.kuberay.resources.health import health, health_alone
from cockpit.backends.kuberay.resources.objects import summary
from cockpit.model.cluster import ClusterHealth
from tests.backends.kuberay.recorded_objects import Moment


@pytest.mark.parametrize(
    ("name", "now", "message"),
    [
        ("created", "starting", "head: its containers are being created"),
        ("starting", "starting", "0 of 2 workers ready"),
        ("ready", "ready", ""),
        ("worker-replaced", "degraded", "2 of 3 workers ready: demo-gpu-worker-zvvnj"),
        ("worker-ended", "degraded", "2 of 3 workers ready"),
        ("head-gone", "down", "the head's pod does not exist"),
        ("head-back", "down", "head: runs, but is not ready yet"),
        ("head-ready", "degraded", "0 of 1 worker ready"),
        ("suspending", "suspended", ""),
        ("suspended", "suspended", ""),
        ("resuming", "starting", "head: runs, but is not ready yet"),
        ("above-max", "ready", ""),
        ("autoscaler-held", "ready", ""),
        ("multi-host", "ready", ""),
    ],
)
def test_each_recorded_moment(name: str, now: str, message: str) -> None:
    moment = Moment.of(name)
    found, text = health(moment.cluster, moment.pods)
    assert (found.value, text[: len(message)]) == (now, message)


def test_a_head_whose_pod_failed_is_down_at_once_also_at_the_first_start() -> None:
    moment = Moment.of("created")
    moment.raw_pods[0]["status"] = {
        "phase": "Failed",
        "containerStatuses": [{"name": "ray", "state": {"terminated": {"exitCode": 1}}}],
    }
    assert health(moment.cluster, moment.pods) == (
        ClusterHealth.DOWN,
        "the head failed: exit code 1",
    )


def test_pods_that_cannot_be_made_are_the_message() -> None:
    moment = Moment.of("worker-replaced")
    moment.raw["status"]["conditions"].append(
        {
            "type": "ReplicaFailure",
            "status": "True",
            "reason": "FailedCreateWorkerPod",
            "message": 'pods "x" is forbidden: exceeded quota: few, requested: pods=1, used: '
            "pods=3, limited: pods=3",
        }
    )
    found, text = health(moment.cluster, moment.pods)
    assert found is ClusterHealth.DEGRADED
    assert text == (
        "2 of 3 workers ready: quota few is used up (needs pods=1, used pods=3, limit pods=3)"
    )


@pytest.mark.parametrize(
    ("name", "now", "counts"),
    [
        ("created", "starting", (2, 0)),
        ("ready", "ready", (2, 2)),
        ("worker-replaced", "degraded", (3, 2)),
        ("head-back", "down", (1, 1)),
        ("suspended", "suspended", (0, 0)),
        ("autoscaler-held", "ready", (0, 2)),
        ("multi-host", "ready", (4, 4)),
    ],
)
def test_a_row_in_the_fleet_comes_of_the_object_alone(
    name: str, now: str, counts: tuple[int, int]
) -> None:
    cluster = Moment.of(name).cluster
    row = summary(cluster, "prod", health_alone(cluster))
    assert (row.health.value, row.desired, row.ready) == (now, *counts)
    assert str(row.ref) == "kuberay:prod/default/demo"
    assert row.ray_version == "2.60.0"


def test_a_cluster_without_worker_groups_is_ready_with_its_head() -> None:
    moment = Moment.of("ready")
    moment.raw["spec"]["workerGroupSpecs"] = None
    assert health(moment.cluster, moment.pods[:1]) == (ClusterHealth.READY, "")
    assert health_alone(moment.cluster) == (ClusterHealth.READY, "")
