"""The stage at which a pod waits, from its object. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cockpit.backends.kuberay.api.fields import items, mapping, text, whole
from cockpit.model.waiting import WaitStage

PULL = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
_VOLUME = ("PersistentVolumeClaim", "persistentvolumeclaim", "volume")
"""In the scheduler's message (plugins VolumeBinding, VolumeZone and NodeVolumeLimits)."""


def pod_stage(raw: Mapping[str, Any]) -> str:
    """A value of WaitStage; empty for a pod that has ended, or while its containers are created.

    The pod's object does not distinguish a volume that is mounted from an image that is pulled:
    both are `ContainerCreating`. Its events do.
    """
    status = mapping(raw, "status")
    if text(status, "phase") in ("Failed", "Succeeded"):
        return ""
    conditions = {text(each, "type"): each for each in items(status, "conditions")}
    if text(conditions.get("Ready", {}), "status") == "True":
        return WaitStage.READY
    scheduled = conditions.get("PodScheduled", {})
    if text(scheduled, "status") == "False":
        if text(scheduled, "reason") == "SchedulingGated":
            return WaitStage.QUEUE
        message = text(scheduled, "message", 1000)
        return WaitStage.VOLUME if _is_of_volume(message) else WaitStage.NODE_ROOM
    if not text(mapping(raw, "spec"), "nodeName"):
        return WaitStage.NODE_ROOM
    return _on_node(status)


def claims(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the volume claims that the pod uses."""
    volumes = items(mapping(raw, "spec"), "volumes")
    found = (text(mapping(each, "persistentVolumeClaim"), "claimName") for each in volumes)
    return tuple(name for name in found if name)


def _is_of_volume(message: str) -> bool:
    """No node has room for its volumes; other missing resources are more often the reason."""
    return "Insufficient" not in message and any(word in message for word in _VOLUME)


def _on_node(status: Mapping[str, Any]) -> str:
    for each in items(status, "initContainerStatuses"):
        state = mapping(each, "state")
        if text(mapping(state, "waiting"), "reason") in PULL:
            return WaitStage.IMAGE_PULL
        done = mapping(state, "terminated")
        if "running" in state or (done and whole(done, "exitCode") != 0):
            return WaitStage.INIT
        if text(mapping(state, "waiting"), "reason") == "CrashLoopBackOff":
            return WaitStage.INIT
        if not done:
            return ""
    started = False
    for each in items(status, "containerStatuses"):
        state = mapping(each, "state")
        reason = text(mapping(state, "waiting"), "reason")
        if reason in PULL:
            return WaitStage.IMAGE_PULL
        started |= "running" in state or "terminated" in state or reason == "CrashLoopBackOff"
    return WaitStage.READY if started else ""
