"""A pod is taken away: what the cluster's operator and the kubelet have to mend."""

from __future__ import annotations

from dataclasses import dataclass

from cockpit.drills.engine import pod_script
from cockpit.drills.faults.fault import (
    Aim,
    DrillContext,
    Fault,
    FaultKind,
    Order,
    Parameter,
    Prepared,
    Victims,
    no_way_in,
)
from cockpit.model.cluster import Pod

GRACE = Parameter("grace_s", 30.0, "seconds between SIGTERM and SIGKILL")


@dataclass(frozen=True, slots=True)
class PodEnd:
    """Every victim is asked to end, with the grace of the order, or at once."""

    kind: FaultKind

    def obstacle(self, backend: str) -> str:
        return "its pods are not ours to delete" if backend == "address" else ""

    async def prepare(self, context: DrillContext, victims: Victims, order: Order) -> Prepared:
        grace_s = float(order.values.get("grace_s", 0.0))
        how = f"SIGTERM, then SIGKILL after {grace_s:g} s" if grace_s else "SIGKILL now"

        async def apply() -> None:
            for pod in victims.pods:
                await context.backend.delete_pod(pod.name, uid=pod.uid, grace_s=grace_s)

        return Prepared(
            lines=tuple(f"Delete {named(pod)}: {how}." for pod in victims.pods),
            apply=apply,
            grace_s=grace_s,
            parameters=order.used,
        )


@dataclass(frozen=True, slots=True)
class ContainerKill:
    """Every process of the Ray container is killed; the pod stays, and its kubelet restarts it."""

    kind: FaultKind

    def obstacle(self, backend: str) -> str:
        if backend == "local":
            return "a local pod is its processes: pod-kill is the same there"
        return no_way_in(backend)

    async def prepare(self, context: DrillContext, victims: Victims, order: Order) -> Prepared:
        for pod in victims.pods:
            what = f"The container of {named(pod)} cannot be killed."
            await pod_script.run(context.backend, pod.name, "container", "check", what=what)

        async def apply() -> None:
            await pod_script.run_in_each(
                context.backend, ((pod.name, "container", "kill") for pod in victims.pods)
            )

        return Prepared(
            lines=tuple(
                f"Kill all processes in the container of {named(pod)}." for pod in victims.pods
            ),
            apply=apply,
        )


def named(pod: Pod) -> str:
    return f"pod {pod.name} (group {pod.group}, {pod.ip or 'no address'})"


FAULTS: dict[str, Fault] = {
    "pod-kill": PodEnd(
        FaultKind(
            "pod-kill", "delete a worker pod without grace: a lost node", Aim.POD,
            needs=("delete pods",),
        )
    ),
    "pod-delete": PodEnd(
        FaultKind(
            "pod-delete", "delete a worker pod with its grace period: a manual eviction", Aim.POD,
            (GRACE,), needs=("delete pods",),
        )
    ),
    "container-kill": ContainerKill(
        FaultKind(
            "container-kill", "SIGKILL all processes of the Ray container; the pod restarts it",
            Aim.POD, needs=("exec in the pod",),
        )
    ),
    "head-kill": PodEnd(
        FaultKind(
            "head-kill", "delete the head pod without grace: GCS, dashboard and drivers die too",
            Aim.HEAD, needs=("delete pods",),
        )
    ),
}  # fmt: skip
