"""The labels that put a RayCluster or a RayJob into a queue.

Kueue reads its label on the object that it manages. KubeRay reads those of Volcano on the
RayCluster, and copies the labels of a RayJob to the RayCluster that it creates (KubeRay 1.7,
`constructRayClusterForRayJob`, and batchscheduler/volcano).
"""

from __future__ import annotations

from cockpit.backends.kuberay.api.fields import is_label
from cockpit.backends.kuberay.waiting import kueue, volcano
from cockpit.model.error import UsageError
from cockpit.model.text import one_line

MANAGERS = ("kueue", "volcano")


def queue_labels(queue: str) -> dict[str, str]:
    """For `NAME` or `kueue:NAME`, and `volcano:NAME`; none for an empty name.

    Raises UsageError for another manager, or a name that no queue can have.
    """
    if not queue:
        return {}
    manager, colon, name = queue.partition(":")
    if not colon:
        manager, name = "kueue", queue
    if manager not in MANAGERS or not is_label(name):
        raise UsageError(
            f"--queue {one_line(queue)!r} names no queue.",
            "It is the NAME of a LocalQueue of Kueue, or volcano:NAME.",
            "For example: --queue team-a",
        )
    if manager == "kueue":
        return {kueue.QUEUE_LABEL: name}
    return {volcano.QUEUE_LABEL: name, volcano.SCHEDULER_LABEL: volcano.SCHEDULER}
