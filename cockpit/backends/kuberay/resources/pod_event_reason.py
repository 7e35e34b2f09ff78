"""What only an event or a machine tells of a pod that is not ready. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from cockpit.backends.kuberay.resources.pod_reason import with_context
from cockpit.model.cluster import Machine, Pod, PodPhase
from cockpit.model.event import Notice

_PAST = (PodPhase.FAILED, PodPhase.SUCCEEDED)


def explained(
    pods: Iterable[Pod], notices: Iterable[Notice], machines: Iterable[Machine]
) -> list[Pod]:
    """The pods, those that are not ready with the reason that a warning or their machine adds."""
    lost = {machine.name: machine.reason for machine in machines if not machine.ready}
    listed = list(pods)
    if all(pod.ready for pod in listed) and not lost:
        return listed
    warnings: dict[str, Notice] = {}
    for notice in notices:
        if notice.warning and notice.kind == "Pod":
            before = warnings.get(notice.name)
            if before is None or before.at_s <= notice.at_s:
                warnings[notice.name] = notice
    return [_explained(pod, warnings, lost) for pod in listed]


def _explained(pod: Pod, warnings: Mapping[str, Notice], lost: Mapping[str, str]) -> Pod:
    if pod.phase in _PAST or (pod.ready and pod.host not in lost):
        return pod
    warning = warnings.get(pod.name)
    message = warning.message if warning is not None else ""
    said = with_context(
        pod.reason,
        warning=message,
        lost_machine=(lost[pod.host] or "it is not ready") if pod.host in lost else "",
    )
    return pod if said == pod.reason else replace(pod, reason=said)
