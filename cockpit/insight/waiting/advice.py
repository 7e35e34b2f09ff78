"""What to do about each stage that blocks."""

from __future__ import annotations

from cockpit.model.cluster import ClusterHealth
from cockpit.model.waiting import QueueEntry, WaitStage, amount
from cockpit.store.store import Store

SUSPENDED = "Create its pods with: cockpit unsuspend"
RIGHTS = "Ask for the roles cockpit-viewer and cockpit-queues-viewer (docs/security.md)."
NO_WORKLOAD = (
    "Check that the controller of the queue runs, and that it manages RayClusters and RayJobs "
    "(Kueue: integrations.frameworks)."
)
STRICT = "The queue is StrictFIFO: it waits for those before it, even if there is room for it."
CHECK = "See: kubectl describe workload, and the AdmissionCheck that it names."
PODS_READY = "If they are not ready in time, Kueue evicts all of them and queues them again."
GANG = "Free the missing resources, or ask for fewer workers: none starts before all have room."


def owned_by_queue(store: Store, *, suspended: bool) -> list[str]:
    """A line for the plan to suspend or unsuspend a cluster that is in a queue of Kueue."""
    if not store.queue:
        return []
    if suspended:
        return [f"Kueue starts it again while queue {store.queue} has admitted it."]
    return [
        f"Kueue owns spec.suspend: queue {store.queue} has not admitted the cluster, and Kueue "
        "suspends it again. See: cockpit why cluster"
    ]


def resized_in_queue(store: Store) -> list[str]:
    """A line for the plan to change the number of pods of a cluster in a queue of Kueue.

    Kueue compares the pod counts with those that it has admitted. If they differ, it suspends the
    cluster and queues it again (Kueue 0.10, `ensureOneWorkload` in pkg/controller/jobframework).
    """
    if not store.queue or store.health is ClusterHealth.SUSPENDED:
        return []
    return [
        f"The cluster is in queue {store.queue}: Kueue deletes all of its pods, the head too, and "
        "creates them again once the queue admits the new number."
    ]


def ahead(entry: QueueEntry) -> str:
    """For a workload behind others."""
    what = "WorkloadPriorityClass" if entry.manager == "kueue" else "priority class"
    return f"Wait, or use a higher {what}."


def queue_problem(entry: QueueEntry) -> str:
    if "no LocalQueue" in entry.queue_problem or "no queue" in entry.queue_problem:
        listed = "localqueues" if entry.manager == "kueue" else "queues.scheduling.volcano.sh"
        return f"Use a queue that exists, or have it created. See: kubectl get {listed}"
    return "Ask the administrator of the queue."


def inactive(entry: QueueEntry) -> str:
    return f"Set spec.active of Workload {entry.workload} to true to queue it again."


def eviction(why: str) -> str:
    if why.startswith("Preempted"):
        return "It is queued again. A higher WorkloadPriorityClass makes preemption less likely."
    if why.startswith("PodsReadyTimeout"):
        return "Its pods were not ready in time: see the pods' events, and Kueue's timeout."
    return "It is queued again when the reason has ended."


def quota(entry: QueueEntry) -> str:
    never = next((use for use in entry.quota if use.asked > use.most), None)
    if never is not None:
        most = amount(never.most, never.resource)
        return f"Ask for at most {most}, use another queue, or have its quota raised."
    return "Wait until another workload ends, ask for less, or have the quota raised."


def pods(refused: str, backend: str = "kuberay") -> str:
    if backend == "address":
        return "See the log of Ray's autoscaler, on the head: logs/monitor.log of the session"
    if backend != "kuberay":
        return "See the log of the cluster's operator (docs/hosts.md, docs/local.md)."
    if "quota" in refused:
        return "Scale down, or have the ResourceQuota of the namespace raised."
    return "See the events of the cluster: cockpit describe cluster"


def pod(stage: WaitStage, reason: str) -> str:
    match stage:
        case WaitStage.NODE_ROOM if "taint" in reason:
            return "Add a toleration to the worker group, or nodes without the taint."
        case WaitStage.NODE_ROOM if "selector" in reason or "affinity" in reason:
            return "Change the node selector of the worker group, or label a node."
        case WaitStage.NODE_ROOM if "cordoned" in reason:
            return "Allow pods on a node again: cockpit uncordon NODE"
        case WaitStage.NODE_ROOM:
            return "Add a node, free one, or ask for less per pod. See: cockpit nodes --kubernetes"
        case WaitStage.VOLUME:
            return "Check the claim and its storage class: kubectl describe pvc"
        case WaitStage.IMAGE_PULL:
            return "Check the image's name and tag, the pull secret, and the node's network."
        case WaitStage.INIT:
            return "See its log: cockpit logs POD"
        case _:
            return "See its log and events: cockpit logs POD, cockpit describe pod/POD"
