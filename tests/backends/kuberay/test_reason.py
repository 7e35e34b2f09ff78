"""Why a pod is not ready, in one line."""

from __future__ import annotations

from typing import Any

import pytest

from cockpit.backends.kuberay.resources.pod_reason import (
    NOT_READY,
    last_log_line,
    reason,
    refusal,
    unschedulable,
    with_context,
    with_last_log_line,
)


def pod(
    *,
    phase: str = "Pending",
    node: str = "n1",
    meta: dict[str, Any] | None = None,
    requests: dict[str, str] | None = None,
    **status: Any,
) -> dict[str, Any]:
    container = {"name": "ray", "resources": {"requests": requests or {}}}
    return {
        "metadata": {"name": "p", **(meta or {})},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": phase, **status},
    }


def waiting(why: str, message: str = "", **more: Any) -> list[dict[str, Any]]:
    state = {"waiting": {"reason": why, "message": message}}
    return [{"name": "ray", "image": "registry/ray:1", "ready": False, "state": state, **more}]


def unscheduled(message: str, requests: dict[str, str]) -> dict[str, Any]:
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return pod(node="", requests=requests, conditions=[{**scheduled, "message": message}])


def test_a_pod_that_no_node_can_hold_reports_what_is_short() -> None:
    found = unscheduled(
        "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are "
        "available: 3 No preemption victims found for incoming pod.",
        {"nvidia.com/gpu": "8", "cpu": "4"},
    )
    assert reason(found) == "no node has 8 free GPUs (0/3 nodes: 3 Insufficient nvidia.com/gpu)"


@pytest.mark.parametrize(
    ("message", "asked", "said"),
    [
        (
            "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory.",
            {"cpu": 4.0, "memory": 2.0**31},
            "no node has 4 free CPUs (0/1 nodes: 1 Insufficient cpu, 1 Insufficient memory)",
        ),
        (  # as Kubernetes 1.34 has it
            "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. no new claims to deallocate, "
            "preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod.",
            {"nvidia.com/gpu": 9.0},
            "no node has 9 free GPUs (0/2 nodes: 2 Insufficient nvidia.com/gpu)",
        ),
        (
            "0/1 nodes are available: 1 Insufficient memory. preemption: not eligible",
            {"memory": 1.5 * 2**30},
            "no node has 1.5 GiB of free memory (0/1 nodes: 1 Insufficient memory)",
        ),
        (
            "0/2 nodes are available: 2 node(s) had untolerated taint {gpu: yes}.",
            {},
            "every node is tainted (0/2 nodes: 2 node(s) had untolerated taint {gpu: yes})",
        ),
        (
            "0/2 nodes are available: 2 node(s) were unschedulable.",
            {},
            "every node is cordoned (0/2 nodes: 2 node(s) were unschedulable)",
        ),
        (
            "0/2 nodes are available: 1 node(s) were unschedulable, 1 Too many pods.",
            {},
            "no node fits (0/2 nodes: 1 node(s) were unschedulable, 1 Too many pods)",
        ),
        (
            "no nodes available to schedule pods",
            {},
            "cannot be scheduled: no nodes available to schedule pods",
        ),
    ],
)
def test_the_schedulers_message_is_shortened(
    message: str, asked: dict[str, float], said: str
) -> None:
    assert unschedulable(message, asked) == said


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            pod(
                containerStatuses=waiting(
                    "ImagePullBackOff",
                    'Back-off pulling image "registry/ray:1": ErrImagePull: rpc error: code = '
                    'NotFound desc = failed to pull and unpack image "registry/ray:1": not found',
                )
            ),
            "cannot pull image registry/ray:1: not found",
        ),
        (
            pod(containerStatuses=waiting("ErrImageNeverPull", "…")),
            "image registry/ray:1 is not on the node, and may not be pulled",
        ),
        (pod(containerStatuses=waiting("ContainerCreating")), "its containers are being created"),
        (
            pod(containerStatuses=waiting("CreateContainerConfigError", 'secret "x" not found')),
            'ray: CreateContainerConfigError: secret "x" not found',
        ),
        (
            pod(
                phase="Running",
                containerStatuses=waiting(
                    "CrashLoopBackOff",
                    restartCount=4,
                    lastState={
                        "terminated": {"exitCode": 1, "reason": "Error", "message": "a\nboom\n"}
                    },
                ),
            ),
            "crash loop, 4 restarts: exit code 1: boom",
        ),
        (
            pod(
                phase="Running",
                containerStatuses=[
                    {
                        "name": "ray",
                        "ready": False,
                        "restartCount": 1,
                        "state": {"running": {}},
                        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                    }
                ],
            ),
            "restarted, 1 restart, after out of memory (OOMKilled)",
        ),
        (
            pod(
                phase="Failed",
                containerStatuses=[
                    {"name": "ray", "state": {"terminated": {"exitCode": 137, "reason": "Error"}}}
                ],
            ),
            "exit code 137 (SIGKILL)",
        ),
        (
            pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory."),
            "evicted: The node was low on resource: memory.",
        ),
        (
            pod(
                initContainerStatuses=[
                    {"name": "fetch", "state": {"running": {}}, "restartCount": 0}
                ]
            ),
            "init container fetch runs",
        ),
        (
            pod(
                initContainerStatuses=[
                    {
                        "name": "fetch",
                        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                        "lastState": {"terminated": {"exitCode": 2}},
                    }
                ]
            ),
            "init container fetch crashes: exit code 2",
        ),
        (
            pod(
                phase="Running",
                meta={"deletionTimestamp": "2026-11-21T06:27:50Z", "deletionGracePeriodSeconds": 0},
                conditions=[
                    {
                        "type": "DisruptionTarget",
                        "status": "True",
                        "reason": "DeletionByTaintManager",
                    }
                ],
            ),
            "terminating with 0 s grace, its node is lost or tainted",
        ),
        (pod(phase="Running"), NOT_READY),
        (pod(node=""), "waits for the scheduler"),
        (pod(phase="Unknown"), "its node n1 does not answer"),
    ],
)
def test_each_cause_has_its_line(found: dict[str, Any], said: str) -> None:
    assert reason(found) == said


def test_a_quota_that_is_used_up_is_named_with_its_numbers() -> None:
    message = (
        'Failed to create worker Pod for the cluster ml/demo, pods "demo-gpu-worker-x" is '
        "forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=8, used: "
        "requests.nvidia.com/gpu=16, limited: requests.nvidia.com/gpu=16"
    )
    assert refusal(message) == (
        "quota gpus is used up (needs requests.nvidia.com/gpu=8, used requests.nvidia.com/gpu=16, "
        "limit requests.nvidia.com/gpu=16)"
    )
    assert refusal('pods "x" is forbidden: violates PodSecurity "restricted"') == (
        'pods are refused: violates PodSecurity "restricted"'
    )


def test_last_message_is_the_last_informative_line() -> None:
    log = "start\nTraceback:\nValueError: no head\x1b[0m\n\n  \n"
    assert last_log_line(log) == "ValueError: no head"
    assert with_last_log_line("crash loop, 2 restarts: exit code 1", log) == (
        "crash loop, 2 restarts: exit code 1: ValueError: no head"
    )
    assert with_last_log_line("exit code 1: boom", "boom") == "exit code 1: boom"


def test_events_and_nodes_complete_the_reason_of_a_pod() -> None:
    warning = "Readiness probe failed: HTTP probe failed with statuscode: 503"
    assert with_context(NOT_READY, warning=warning) == warning
    assert with_context("exit code 1", warning=warning) == "exit code 1"
    assert with_context(NOT_READY, lost_node="its kubelet does not answer") == (
        "its node is lost: its kubelet does not answer"
    )


def test_secret_in_a_last_line_is_masked() -> None:
    line = "login failed: password=hunter2"
    ended = {"exitCode": 1, "reason": "Error", "message": f"{line}\n"}
    failed = pod(
        phase="Failed", containerStatuses=[{"name": "ray", "state": {"terminated": ended}}]
    )
    masked = "exit code 1: login failed: password=***"
    assert reason(failed) == with_last_log_line("exit code 1", line) == masked
