"""From Kubernetes' objects to the model, on recorded ones and on broken ones."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cockpit.backends.kuberay.api.fields import quantity, seconds
from cockpit.backends.kuberay.resources import objects
from cockpit.backends.kuberay.resources.health import health, health_alone
from cockpit.backends.kuberay.resources.objects import worker_groups
from cockpit.backends.kuberay.resources.raycluster import ray_cluster
from cockpit.model.cluster import NodeType, PodPhase
from cockpit.model.run import JobStatus
from tests.backends.kuberay.recorded_objects import Moment

HOSTILE = "evil\x1b]0;owned\x07\x1b[2J\u202e\x9b31m"


def test_a_ready_cluster_has_a_ready_head_and_workers_with_addresses_and_nodes() -> None:
    moment = Moment.of("ready")
    head, *workers = moment.pods
    assert (head.node_type, head.group, head.ready) == (NodeType.HEAD, "headgroup", True)
    assert [(pod.group, pod.phase, pod.ready) for pod in workers] == [
        ("gpu", PodPhase.RUNNING, True)
    ] * 2
    assert all(pod.ip and pod.host and pod.created_s > 1.7e9 for pod in (head, *workers))
    assert [pod.reason for pod in (head, *workers)] == ["", "", ""]
    (group,) = worker_groups(moment.cluster, moment.pods)
    assert (group.name, group.desired, group.ready, group.min, group.max) == ("gpu", 2, 2, 0, 5)
    assert (group.resources.cpus, group.note) == (1.0, "")


def test_workers_that_wait_for_the_head_report_it() -> None:
    reasons = [pod.reason for pod in Moment.of("workers-wait").pods]
    assert reasons == ["runs, but is not ready yet", *["waits for the head's GCS"] * 2]


def test_a_pod_whose_processes_ended_is_failed_although_its_object_is_still_there() -> None:
    (ended,) = (pod for pod in Moment.of("worker-ended").pods if pod.phase is PodPhase.FAILED)
    assert (ended.phase, ended.ready, ended.reason) == (PodPhase.FAILED, False, "exit code 1")
    assert ended.ended_s is not None
    assert ended.ended_s > ended.created_s


def test_a_pod_that_is_asked_to_go_is_terminating_and_not_ready() -> None:
    found = Moment.of("ready")
    found.raw_pods[1]["metadata"] |= {
        "deletionTimestamp": "2026-11-21T06:29:50Z",
        "deletionGracePeriodSeconds": 30,
    }
    going = found.pods[1]
    assert (going.phase, going.ready) == (PodPhase.TERMINATING, False)
    assert going.reason == "terminating with 30 s grace"


def test_replicas_above_max_are_wanted_only_up_to_max() -> None:
    moment = Moment.of("above-max")
    (group,) = worker_groups(moment.cluster, moment.pods)
    assert (group.desired, group.ready) == (5, 5)
    assert group.note == "limited to 5 (max 5), asks for 7"


def test_pods_held_by_the_autoscaler_are_in_the_note() -> None:
    moment = Moment.of("autoscaler-held")
    (group,) = worker_groups(moment.cluster, moment.pods)
    assert (group.desired, group.ready, group.autoscaled) == (0, 2, True)
    assert group.note == "2 running, held by the autoscaler until idle"


def test_pods_that_the_autoscaler_is_removing_are_not_held() -> None:
    moment = Moment.of("autoscaler-removes")
    (group,) = worker_groups(moment.cluster, moment.pods)
    assert (group.desired, group.note) == (2, "")


def test_several_hosts_make_a_replica_and_counts_are_of_pods() -> None:
    moment = Moment.of("multi-host")
    (group,) = worker_groups(moment.cluster, moment.pods)
    assert (group.hosts, group.desired, group.ready, group.max) == (2, 4, 4, 6)
    replicas = [pod.replica for pod in moment.workers]
    assert sorted(replicas) == ["gpu-4b8vb"] * 2 + ["gpu-7kwrl"] * 2


def test_gpus_are_counted_of_any_maker_and_of_limits() -> None:
    found = Moment.of("ready")
    found.raw_pods[1]["spec"]["containers"][0]["resources"] = {
        "limits": {"nvidia.com/gpu": "8"},
        "requests": {"nvidia.com/gpu": "8"},
    }
    found.raw_pods[2]["spec"]["containers"][0]["resources"] = {"limits": {"amd.com/gpu": 2}}
    assert [pod.gpus for pod in found.pods] == [0.0, 8.0, 2.0]
    found.group["template"]["spec"]["containers"][0]["resources"] = {
        "limits": {"nvidia.com/gpu": "8"}
    }
    assert [group.resources.gpus for group in found.cluster.groups] == [8.0]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("100m", 0.1),
        ("3Gi", 3 * 2**30),
        ("8", 8),
        ("2k", 2000),
        ("12e6", 12e6),
        ("1.5Ei", 1.5 * 2**60),
        *((odd, 0) for odd in ("", "many", None, "Gi")),
    ],
)
def test_quantities(text: object, number: float) -> None:
    assert quantity(text) == pytest.approx(number)


def test_times_without_sense_are_zero() -> None:
    assert seconds("2026-11-21T06:27:50Z") == 1795242470
    assert seconds("2026-11-21T06:27:50.5+00:00") == 1795242470.5
    odds: tuple[object, ...] = ("", "soon", 5, None, {})
    assert [seconds(odd) for odd in odds] == [0.0] * 5


def _broken(raw: Any) -> list[Any]:
    """Every variant of the object with one value of it replaced by one of another type."""
    variants: list[Any] = []
    odds: tuple[Any, ...] = (None, 7, -1.5, "text", [], {}, [None], {"x": None}, True, [[]])

    def walk(node: Any, path: tuple[Any, ...]) -> None:
        for odd in odds if path else ():
            whole = copy.deepcopy(raw)
            spot = whole
            for key in path[:-1]:
                spot = spot[key]
            spot[path[-1]] = odd
            variants.append(whole)
        if isinstance(node, dict):
            for key, child in node.items():
                walk(child, (*path, key))
        elif isinstance(node, list):
            for index, child in enumerate(node):
                walk(child, (*path, index))

    walk(raw, ())
    return variants


def test_no_broken_object_stops_us() -> None:
    found = Moment.of("worker-ended")
    for variant in _broken(found.raw):
        cluster = ray_cluster(variant)
        worker_groups(cluster, found.pods)
        health(cluster, found.pods)
        health_alone(cluster)
    for variant in _broken(found.raw_pods[1]):
        objects.pod(variant)
    for variant in _broken(NODE):
        objects.kubernetes_node(variant)
    for variant in _broken(EVENT):
        objects.notice(variant, "backend")
    for variant in _broken(RAYJOB):
        objects.ray_job(variant)


RAYJOB: dict[str, Any] = {
    "metadata": {"name": "fit", "creationTimestamp": "2026-11-21T06:27:50Z"},
    "spec": {
        "entrypoint": "python fit.py",
        "clusterSelector": {"ray.io/cluster": "demo"},
        "metadata": {"owner": "jane"},
    },
    "status": {
        "jobId": "fit-x7",
        "jobStatus": "RUNNING",
        "jobDeploymentStatus": "Running",
        "rayClusterName": "demo",
        "startTime": "2026-11-21T06:28:50Z",
    },
}
NODE: dict[str, Any] = {
    "metadata": {"name": "gpu-7", "creationTimestamp": "2026-11-21T06:27:50Z"},
    "spec": {
        "unschedulable": True,
        "taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}],
    },
    "status": {
        "allocatable": {"cpu": "96", "memory": "768Gi", "nvidia.com/gpu": "8"},
        "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}],
        "nodeInfo": {"kubeletVersion": "v1.34.4"},
        "conditions": [
            {"type": "DiskPressure", "status": "True"},
            {"type": "Ready", "status": "True", "message": "kubelet is posting ready status"},
        ],
    },
}
EVENT: dict[str, Any] = {
    "metadata": {"name": "e", "uid": "u1", "creationTimestamp": "2026-11-21T06:27:50Z"},
    "involvedObject": {"kind": "Pod", "name": "demo-gpu-worker-92lr4", "uid": "p1"},
    "reason": "Unhealthy",
    "message": "Readiness probe failed: HTTP probe failed with statuscode: 503",
    "type": "Warning",
    "count": 2,
    "lastTimestamp": "2026-11-21T06:28:50Z",
}


def test_a_node_reports_what_it_offers_and_its_pressure() -> None:
    node = objects.kubernetes_node(NODE)
    assert (node.name, node.ready, node.cordoned) == ("gpu-7", True, True)
    assert (node.gpus, node.cpus, node.memory_bytes) == (8.0, 96.0, 768 * 2**30)
    assert (node.reason, node.ip, node.version) == ("DiskPressure", "10.0.0.7", "v1.34.4")
    assert node.taints == ("gpu:NoSchedule",)
    assert (node.problems, node.type) == (("DiskPressure",), "")
    typed = copy.deepcopy(NODE)
    typed["metadata"]["labels"] = {"node.kubernetes.io/instance-type": "p4d.24xlarge"}
    assert objects.kubernetes_node(typed).type == "p4d.24xlarge"
    sick = copy.deepcopy(NODE)
    sick["spec"]["taints"] += [
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
        {"key": "default-pool", "effect": "NoSchedule"},
        {"key": "example.com/gpu-health", "value": "unhealthy", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
    ]
    sick["status"]["conditions"] = [
        {"type": "KernelDeadlock", "status": "True"},
        {"type": "GpuHealthy", "status": "False"},
        {"type": "NvLinkActive", "status": "True"},
        {"type": "Ready", "status": "True"},
    ]
    problems = ("KernelDeadlock", "GpuHealthy", "taint example.com/gpu-health=unhealthy")
    assert objects.kubernetes_node(sick).problems == problems
    sick["status"]["capacity"] = {"cpu": "100", "nvidia.com/gpu": "8"}
    assert objects.kubernetes_node(sick).withdrawn == ""
    sick["status"]["allocatable"]["nvidia.com/gpu"] = "7"
    assert objects.kubernetes_node(sick).withdrawn == "1 of 8 GPUs withdrawn"
    del sick["status"]["allocatable"]["nvidia.com/gpu"]
    assert objects.kubernetes_node(sick).withdrawn == "8 of 8 GPUs withdrawn"
    lost = copy.deepcopy(NODE)
    lost["status"]["conditions"][1] = {
        "type": "Ready",
        "status": "Unknown",
        "message": "Kubelet stopped posting node status.",
    }
    stale = objects.kubernetes_node(lost)
    assert (stale.ready, stale.reason) == (False, "Kubelet stopped posting node status.")


def test_an_event_is_a_notice_of_its_last_time_with_its_count() -> None:
    notice = objects.notice(EVENT, "backend")
    assert (notice.kind, notice.name, notice.at_s) == ("Pod", "demo-gpu-worker-92lr4", 1795242530)
    assert (notice.warning, notice.reason, notice.message[-4:]) == (True, "Unhealthy", "(×2)")


@pytest.mark.parametrize(
    ("status", "known", "deployment"),
    [
        ({}, JobStatus.PENDING, "New"),
        ({"jobDeploymentStatus": "Initializing"}, JobStatus.PENDING, "Initializing"),
        (
            {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"},
            JobStatus.RUNNING,
            "Running",
        ),
        (
            {"jobDeploymentStatus": "Complete", "jobStatus": "STOPPED"},
            JobStatus.STOPPED,
            "Complete",
        ),
        # It was never submitted: its deadline had passed.
        ({"jobDeploymentStatus": "Failed"}, JobStatus.FAILED, "Failed"),
        (
            {"jobDeploymentStatus": "Failed", "jobStatus": "RUNNING"},
            JobStatus.FAILED,
            "Failed",
        ),
        ({"jobDeploymentStatus": "Suspended"}, JobStatus.STOPPED, "Suspended"),
    ],
)
def test_a_rayjob_is_a_job_that_knows_where_it_is(
    status: dict[str, Any], known: JobStatus, deployment: str
) -> None:
    job = objects.ray_job({**RAYJOB, "status": status})
    assert (job.status, job.deployment, job.rayjob) == (known, deployment, "fit")
    assert (job.id, job.cluster, job.metadata) == ("fit", "demo", {"owner": "jane"})
    assert objects.ray_job(RAYJOB).id == "fit-x7"


def test_no_control_sequence_of_an_object_comes_through() -> None:
    found = Moment.of("worker-ended")

    def poison(node: Any) -> Any:
        if isinstance(node, dict):
            return {key + HOSTILE if not path(key) else key: poison(node[key]) for key in node}
        if isinstance(node, list):
            return [poison(child) for child in node]
        return node + HOSTILE * 50 if isinstance(node, str) else node

    def path(key: str) -> bool:
        """A key that is read: only a map of the user's own has others."""
        return key != "owner"

    seen: list[object] = [ray_cluster(poison(found.raw))]
    seen += [objects.pod(poison(raw)) for raw in found.raw_pods]
    seen += [objects.kubernetes_node(poison(NODE)), objects.notice(poison(EVENT), "backend")]
    seen += [objects.ray_job(poison(RAYJOB))]
    text = repr(seen)
    # `repr` shows a control character as its escape.
    assert not any(sign in text for sign in ("\\x1b", "\\x9b", "\\x07", "\\u202e"))
    assert "evil" in text
