"""The network traffic of pods, as their kubelets measure it, through Prometheus.

The kubelet exports the metrics of cAdvisor at `/metrics/cadvisor`, with the labels `namespace`,
`pod` and `interface`. They have no loopback interface (cadvisor/container/libcontainer/handler.go).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Set

from cockpit.model.cluster import PodTraffic
from cockpit.model.text import one_line
from cockpit.sources.prometheus.api import Curve, quoted

RECEIVED = "container_network_receive_bytes_total"
SENT = "container_network_transmit_bytes_total"
WINDOW = "2m"
"""Has two samples also where kubelets are scraped once a minute."""


def query(namespace: str, selector: str) -> str:
    """One question for all pods of a namespace: the label `what` names the number."""
    inside = f"namespace={quoted(namespace)}{',' + selector if selector else ''}"

    def rate(name: str, what: str) -> str:
        # Two jobs may scrape one kubelet.
        each = f"max by (pod, interface) (rate({name}{{{inside}}}[{WINDOW}]))"
        return f'label_replace(sum by (pod) ({each}), "what", "{what}", "", "")'

    return f"{rate(RECEIVED, 'received_bytes_per_s')} or {rate(SENT, 'sent_bytes_per_s')}"


def traffic(curves: Iterable[Curve], pods: Set[str]) -> tuple[PodTraffic, ...]:
    """Of these pods."""
    found: dict[str, dict[str, float]] = {}
    for curve in curves:
        pod, what = curve.labels.get("pod", ""), curve.labels.get("what", "")
        known = pod in pods and what in PodTraffic.__struct_fields__[1:]
        if known and math.isfinite(curve.values[0]):
            found.setdefault(pod, {})[what] = curve.values[0]
    return tuple(PodTraffic(one_line(pod), **numbers) for pod, numbers in sorted(found.items()))
