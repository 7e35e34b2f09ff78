"""Faults that remove a pod, which the cluster's operator and the kubelet replace."""

from __future__ import annotations

from cockpit.drills.engine import pod_script
from cockpit.drills.faults.fault import (
    NO_EXEC,
    Aim,
    DrillContext,
    Fault,
    Order,
    Parameter,
    Prepared,
    Victims,
)
from cockpit.format import in_seconds
from cockpit.model.cluster import Pod

NO_DELETE = {"address": "cockpit cannot delete its pods"}


async def pod_end(context: DrillContext, victims: Victims, order: Order) -> Prepared:
    """Delete every victim, with the grace of the order or at once."""
    grace_s = float(order.values.get("grace_s", 0.0))
    how = f"SIGTERM, then SIGKILL after {in_seconds(grace_s)}" if grace_s else "SIGKILL now"

    async def apply() -> None:
        for pod in victims.pods:
            await context.backend.delete_pod(pod.name, uid=pod.uid, grace_s=grace_s)

    return Prepared(
        lines=tuple(f"Delete {named(pod)}: {how}." for pod in victims.pods),
        apply=apply,
        grace_s=grace_s,
        parameters=order.used,
    )


async def container_kill(context: DrillContext, victims: Victims, order: Order) -> Prepared:
    """Kill every process of the Ray container; the pod stays, and its kubelet restarts it."""
    for pod in victims.pods:
        what = f"The container of {named(pod)} cannot be killed."
        await pod_script.run(context.backend, pod.name, "container", "check", what=what)
    return pod_script.prepared(
        context,
        order,
        (f"Kill all processes in the container of {named(pod)}." for pod in victims.pods),
        ((pod.name, "container", "kill") for pod in victims.pods),
    )


def named(pod: Pod) -> str:
    return f"pod {pod.name} (group {pod.group}, {pod.ip or 'no address'})"


FAULTS = (
    Fault(
        "pod-kill", "delete a worker pod with no grace period, as if its node were lost", Aim.POD,
        pod_end, needs=("delete pods",), repair="the pod is replaced", unavailable=NO_DELETE,
    ),
    Fault(
        "pod-delete", "delete a worker pod with a grace period, as kubectl delete does", Aim.POD,
        pod_end, (Parameter("grace_s", 30.0, "seconds between SIGTERM and SIGKILL"),),
        needs=("delete pods",), repair="the pod is replaced", unavailable=NO_DELETE,
    ),
    Fault(
        "container-kill", "SIGKILL all processes of the Ray container in a worker pod",
        Aim.POD, container_kill, needs=("exec in the pod",), repair="the container is restarted",
        unavailable=NO_EXEC
        | dict.fromkeys(
            ("local", "ssh"), "pods have no containers; pod-kill has the same effect"
        ),
    ),
    Fault(
        "head-kill", "delete the head pod with no grace period; its GCS and drivers end", Aim.HEAD,
        pod_end, needs=("delete pods",), repair="the head pod is replaced", unavailable=NO_DELETE,
    ),
)  # fmt: skip
