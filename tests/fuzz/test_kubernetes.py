"""Kubernetes objects: `Reflector` skips an object, or it can be shown."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from cockpit.backends.kuberay.api.fields import UNUSABLE
from cockpit.backends.kuberay.resources import describe, objects
from cockpit.backends.kuberay.resources.health import health, health_alone
from cockpit.backends.kuberay.resources.raycluster import ray_cluster
from cockpit.model.decoding.limited_json import loads
from tests.backends.kuberay.recorded_objects import Moment
from tests.fuzz.cases import assert_clean, broken, examine, quick_and_nightly

MOMENTS = [Moment.of(name) for name in ("ready", "starting", "worker-ended", "workers-wait")]
CLUSTERS = [moment.raw for moment in MOMENTS]
PODS = [pod for moment in MOMENTS for pod in moment.raw_pods[:3]]
META = {
    "name": "n1",
    "namespace": "default",
    "uid": "u",
    "creationTimestamp": "2026-11-21T06:27:50Z",
}
NODE = {
    "metadata": META | {"labels": {"topology.kubernetes.io/zone": "a", "pool": "spot"}},
    "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
    "status": {
        "conditions": [{"type": "Ready", "status": "True", "reason": "x", "message": "y"}],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "allocatable": {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "4"},
        "capacity": {"cpu": "8"},
    },
}
RAYJOB = {
    "metadata": META | {"annotations": {"a": "b"}},
    "spec": {"entrypoint": "python x.py", "jobId": "j", "clusterSelector": {"ray.io/cluster": "c"}},
    "status": {
        "jobId": "j",
        "jobStatus": "RUNNING",
        "jobDeploymentStatus": "Running",
        "rayClusterName": "c",
        "message": "m",
        "reason": "r",
        "startTime": "2026-11-21T06:27:50Z",
        "endTime": "2026-11-21T06:28:50Z",
        "rayJobInfo": {"startTime": "2026-11-21T06:27:50Z"},
    },
}
EVENT = {
    "metadata": META,
    "involvedObject": {"kind": "Pod", "name": "demo-head-x1y2z", "uid": "u"},
    "reason": "BackOff",
    "message": "Back-off pulling image",
    "type": "Warning",
    "count": 3,
    "firstTimestamp": "2026-11-21T06:27:50Z",
    "lastTimestamp": "2026-11-21T06:27:50Z",
    "eventTime": None,
    "series": {"count": 2, "lastObservedTime": "2026-11-21T06:27:50.000000Z"},
}
KINDS: dict[str, tuple[Any, Any]] = {
    "cluster": (CLUSTERS, ray_cluster),
    "pod": (PODS, objects.pod),
    "node": ([NODE], objects.kubernetes_node),
    "rayjob": ([RAYJOB], objects.ray_job),
    "event": ([EVENT], lambda raw: objects.notice(raw, "backend")),
}


DESCRIBED = {"cluster": "cluster", "pod": "pod", "node": "node", "rayjob": "rayjob"}


@pytest.mark.parametrize("kind", KINDS)
@quick_and_nightly(3_000)
def test_object_is_skipped_or_clean(kind: str, cases: int) -> None:
    documents, parse = KINDS[kind]

    def check(raw: Any) -> None:
        with suppress(*UNUSABLE):
            read = loads(json.dumps(raw))
            assert_clean(parse(read))
            if kind in DESCRIBED:
                assert_clean(describe._lines(describe._rows(DESCRIBED[kind], read, "n1", None)))

    examine(broken(*documents), check, cases)


@quick_and_nightly(3_000)
def test_health_and_groups_of_any_cluster_can_be_shown(cases: int) -> None:
    def check(raw: Any) -> None:
        read = loads(json.dumps(raw))
        with suppress(*UNUSABLE):
            cluster = ray_cluster(read["cluster"])
            pods = []
            for pod in read["pods"]:
                with suppress(*UNUSABLE):
                    pods.append(objects.pod(pod))
            shown(cluster, pods)

    examine(
        broken(*({"cluster": one.raw, "pods": one.raw_pods[:2]} for one in MOMENTS)), check, cases
    )


def shown(cluster: Any, pods: list[Any]) -> None:
    """Outside of what may fail: it was understood, so this must work."""
    try:
        assert_clean(health(cluster, pods))
        assert_clean(health_alone(cluster))
        assert_clean(objects.worker_groups(cluster, pods))
        assert_clean(objects.summary(cluster, "context", health_alone(cluster)))
        assert objects.pods_in_order(pods) is not None
    except UNUSABLE as error:
        raise AssertionError(f"{type(error).__name__}: {error}") from error
