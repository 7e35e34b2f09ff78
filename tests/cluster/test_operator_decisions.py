"""The decisions of the fake operator: pods to create and to delete, and the status."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from tests.cluster.operator import pod, raycluster
from tests.cluster.operator.group import Plan, plan
from tests.cluster.operator.pod import Pod
from tests.cluster.operator.quantity import Quantity, total
from tests.cluster.operator.ray_start import command, parameters
from tests.cluster.operator.raycluster import Cluster
from tests.cluster.operator.status import Trouble, differs, status
from tests.cluster.operator.template import head_pod, worker_pod

NOW = "2026-01-02T03:04:05Z"
TEMPLATE = {
    "spec": {
        "containers": [
            {
                "name": "ray",
                "image": "ray",
                "resources": {"limits": {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "4"}},
            }
        ]
    }
}


def cluster(
    replicas: int = 2, hosts: int = 1, *, delete: tuple[str, ...] = (), **spec: Any
) -> Cluster:
    group = {
        "groupName": "gpu",
        "replicas": replicas,
        "minReplicas": 0,
        "maxReplicas": 5,
        "numOfHosts": hosts,
        "scaleStrategy": {"workersToDelete": list(delete)},
        "template": TEMPLATE,
    }
    item = {
        "metadata": {"name": "demo", "namespace": "ns", "uid": "1", "resourceVersion": "7"},
        "spec": {
            "rayVersion": "2.60.0",
            "headGroupSpec": {"template": TEMPLATE},
            "workerGroupSpecs": [group],
            **spec,
        },
    }
    return raycluster.parse(item)


def worker(
    number: int,
    *,
    phase: str = "Running",
    ready: str = "True",
    replica: str = "",
    never: bool = False,
    ended: bool = False,
) -> Pod:
    labels = {
        "ray.io/node-type": "worker",
        "ray.io/group": "gpu",
        pod.REPLICA_INDEX: str(number),
        pod.REPLICA_NAME: replica,
    }
    state = {"terminated": {"exitCode": 1, "reason": "Error"}} if ended else {"running": {}}
    return pod.parse(
        {
            "metadata": {"name": f"worker-{number}", "namespace": "ns", "labels": labels},
            "spec": {
                "restartPolicy": "Never" if never else "Always",
                "containers": [{"name": "ray"}],
            },
            "status": {
                "phase": phase,
                "podIP": "10.0.0.9",
                "conditions": [{"type": "Ready", "status": ready}],
                "containerStatuses": [{"name": "ray", "state": state}],
            },
        }
    )


def head() -> Pod:
    item = worker(9)
    return replace(item, head=True, name="head", group="headgroup")


def decide(wanted: Cluster, *pods: Pod) -> Plan:
    return plan(wanted, wanted.groups[0], pods)


def test_missing_workers_take_the_lowest_free_indices() -> None:
    decided = decide(cluster(4), worker(0), worker(2))
    assert [creation.index for creation in decided.creations] == [1, 3]


@pytest.mark.parametrize(("asked", "made"), [(7, 5), (3, 3), (0, 0)])
def test_replicas_beyond_the_maximum_are_clamped(asked: int, made: int) -> None:
    assert len(decide(cluster(asked)).creations) == made
    reported = status(cluster(asked), [], None, None, NOW)
    assert reported.get("desiredWorkerReplicas", 0) == made


def test_named_workers_go_first_and_nothing_else_does() -> None:
    decided = decide(cluster(1, delete=("worker-1",)), worker(0), worker(1))
    assert [deletion.pod.name for deletion in decided.deletions] == ["worker-1"]
    assert not decided.creations


def test_with_the_autoscaler_no_pod_is_picked_at_random() -> None:
    scaled = cluster(0, enableInTreeAutoscaling=True)
    assert decide(scaled, worker(0), worker(1)) == Plan()
    assert len(decide(cluster(0), worker(0), worker(1)).deletions) == 2


def test_a_dead_worker_is_deleted_before_it_is_replaced() -> None:
    decided = decide(cluster(2), worker(0, phase="Failed"), worker(1))
    assert [deletion.pod.name for deletion in decided.deletions] == ["worker-0"]
    assert decided.unfinished
    assert not decided.creations


def test_an_ended_container_is_replaced_only_where_no_kubelet_restarts_it() -> None:
    assert not decide(cluster(1), worker(0, ended=True)).deletions
    assert decide(cluster(1), worker(0, ended=True, never=True)).deletions


def test_a_replica_of_two_hosts_is_made_and_lost_as_one() -> None:
    made = decide(cluster(1, 2)).creations
    assert [(creation.index, creation.host) for creation in made] == [(0, 0), (0, 1)]
    assert len({creation.replica for creation in made}) == 1
    alone = decide(cluster(1, 2), worker(0, replica="a"))
    assert [deletion.pod.name for deletion in alone.deletions] == ["worker-0"]
    named = decide(
        cluster(1, 2, delete=("worker-0",)), worker(0, replica="a"), worker(1, replica="a")
    )
    assert len(named.deletions) == 2


def test_a_suspended_group_has_no_pods() -> None:
    spec = copy.deepcopy(TEMPLATE)
    group = {"groupName": "gpu", "replicas": 2, "suspend": True, "template": spec}
    decided = decide(cluster(workerGroupSpecs=[group]), worker(0))
    assert [deletion.pod.name for deletion in decided.deletions] == ["worker-0"]


def test_zeros_are_left_out_of_the_status() -> None:
    reported = status(cluster(0), [], None, None, NOW)
    assert not [name for name in reported if name.endswith("WorkerReplicas") and not reported[name]]
    assert "readyWorkerReplicas" not in reported
    assert reported["desiredGPU"] == "4"


def test_ready_stays_the_state_while_pods_are_dead() -> None:
    wanted = cluster(1)
    first = status(wanted, [head(), worker(0)], None, None, NOW)
    assert first["state"] == "ready"
    later = replace(wanted, status=first)
    reported = status(later, [head(), worker(0, ready="False")], None, None, NOW)
    assert reported["state"] == "ready"
    assert "readyWorkerReplicas" not in reported


def test_a_pod_that_cannot_be_made_is_a_condition_until_it_can() -> None:
    refused = Trouble("exceeded quota", "FailedCreateWorkerPod")
    wanted = cluster(1)
    reported = status(wanted, [head()], None, refused, NOW)
    condition = next(c for c in reported["conditions"] if c["type"] == "ReplicaFailure")
    assert (condition["status"], condition["message"]) == ("True", "exceeded quota")
    later = replace(wanted, status=reported)
    kinds = [c["type"] for c in status(later, [head()], None, None, NOW)["conditions"]]
    assert "ReplicaFailure" not in kinds


def test_suspension_takes_two_steps_there_and_one_back() -> None:
    wanted = cluster(0, suspend=True)
    suspending = status(wanted, [head()], None, None, NOW)
    assert _true(suspending) == {"HeadPodReady", "RayClusterProvisioned", "RayClusterSuspending"}
    removed = replace(wanted, status=suspending)
    suspended = status(removed, [], None, None, NOW)
    assert _true(suspended) == {"RayClusterSuspended"}
    assert suspended["state"] == "suspended"
    for suspend, held in ((None, {"RayClusterSuspended"}), (False, set())):
        resumed = cluster(0, suspend=suspend)
        resumed = replace(resumed, status=suspended)
        assert _true(status(resumed, [], None, None, NOW)) == held


def test_time_alone_is_not_worth_a_request() -> None:
    reported = status(cluster(1), [head()], None, None, NOW)
    assert not differs(reported, {**reported, "lastUpdateTime": "later", "observedGeneration": 9})
    assert differs(reported, {**reported, "availableWorkerReplicas": 3})


def test_ray_is_started_with_what_the_container_may_use() -> None:
    resources = {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "4"}
    found = parameters({"block": "false"}, {"limits": resources})
    assert (found["num-cpus"], found["num-gpus"], found["memory"]) == ("2", "4", "1073741824")
    text = command(found, head=True)
    assert text.startswith("ray start --head ")
    assert " --block " in text
    given = parameters({"num-cpus": "0", "log-color": "false"}, {}, address="head")
    assert " --address=head:6379 " in command(given, head=False)
    assert " --log-color=false " in command(given, head=False)


def test_the_token_reaches_every_container_that_connects_to_ray() -> None:
    secured = cluster(authOptions={"mode": "token"}, enableInTreeAutoscaling=True)
    pods = [head_pod(secured), worker_pod(secured, secured.groups[0], 0, 0, "")]
    for made in pods:
        for container in (*made["spec"]["containers"], *made["spec"].get("initContainers", ())):
            data = {variable["name"]: variable for variable in container["env"]}
            assert data["RAY_AUTH_MODE"]["value"] == "token"
            reference = data["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]
            assert reference == {"name": "demo", "key": "auth_token"}


def test_workers_wait_for_the_gcs_in_an_init_container_unless_disabled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = cluster()
    (waiting,) = worker_pod(made, made.groups[0], 0, 0, "")["spec"]["initContainers"]
    assert waiting["name"] == "wait-gcs-ready"
    monkeypatch.setenv("ENABLE_INIT_CONTAINER_INJECTION", "false")
    assert "initContainers" not in worker_pod(made, made.groups[0], 0, 0, "")["spec"]


def test_autoscaler_v2_makes_pods_that_never_restart() -> None:
    scaled = cluster(enableInTreeAutoscaling=True, autoscalerOptions={"version": "v2"})
    made = head_pod(scaled)
    assert made["spec"]["restartPolicy"] == "Never"
    assert [container["name"] for container in made["spec"]["containers"]] == ["ray", "autoscaler"]
    assert made["spec"]["serviceAccountName"] == "demo"
    worker_made = worker_pod(scaled, scaled.groups[0], 0, 0, "")
    assert worker_made["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize(
    "spec",
    [
        {"authOptions": {"mode": "token"}, "rayVersion": "2.40.0"},
        {"headGroupSpec": {"template": {"spec": {"containers": []}}}},
        {
            "workerGroupSpecs": [
                {"groupName": "gpu", "minReplicas": 3, "maxReplicas": 1, "template": TEMPLATE}
            ]
        },
    ],
)
def test_a_spec_that_the_real_operator_refuses_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        cluster(**spec)


@pytest.mark.parametrize(
    ("parts", "sum_"),
    [
        (("100m", "200m"), "300m"),
        (("500m", "500m"), "1"),
        (("1Gi", "2Gi"), "3Gi"),
        (("512Mi", "1Gi"), "1536Mi"),
        (("0", "8"), "8"),
        ((), "0"),
    ],
)
def test_quantities_add_up_and_are_written_as_kubernetes_does(
    parts: tuple[str, ...], sum_: str
) -> None:
    assert str(total(Quantity.parse(part) for part in parts)) == sum_


def _true(reported: dict[str, Any]) -> set[str]:
    return {c["type"] for c in reported["conditions"] if c["status"] == "True"}


def test_head_with_redis_has_its_address_and_password_and_workers_wait_longer_for_it() -> None:
    password = {"valueFrom": {"secretKeyRef": {"name": "redis", "key": "password"}}}
    options = {"redisAddress": "redis:6379", "redisPassword": password}
    wanted = cluster(gcsFaultToleranceOptions=options)
    made = head_pod(wanted)
    [ray] = made["spec"]["containers"]
    variables = {each["name"]: each.get("value", each.get("valueFrom")) for each in ray["env"]}
    assert variables["RAY_REDIS_ADDRESS"] == "redis:6379"
    assert variables["RAY_external_storage_namespace"] == "1"
    assert variables["REDIS_PASSWORD"] == password["valueFrom"]
    assert " --redis-password=$REDIS_PASSWORD " in ray["args"][0]
    assert made["metadata"]["annotations"]["ray.io/ft-enabled"] == "true"
    [ray] = worker_pod(wanted, wanted.groups[0], 0, 0, "")["spec"]["containers"]
    waits = {"name": "RAY_gcs_rpc_server_reconnect_timeout_s", "value": "600"}
    assert waits in ray["env"]
    assert waits not in head_pod(wanted)["spec"]["containers"][0]["env"]
