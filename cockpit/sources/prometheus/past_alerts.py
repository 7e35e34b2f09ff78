"""The alerts of a run that Prometheus has raised and cleared, from its series `ALERTS`.

cockpit raises its alerts only while it runs. A server with the rules of `manifests/monitoring`, or
with other rules that keep the label `run`, remembers those of the time before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cockpit.model.alert import Alert, Finding, PastAlert, Severity
from cockpit.model.text import one_line
from cockpit.sources.prometheus.api import Curve, quoted

MOST = 100
"""The newest ones."""
LEAST_STEP_S = 60
"""Servers evaluate rules at most this rarely by default."""


def query(run_id: str, step_s: int) -> str:
    """Whether each alert fired within the step.

    Without the selector of the configuration: rules drop the labels that it may name.
    """
    fired = f'ALERTS{{alertstate="firing",run={quoted(run_id)}}}'
    return f"max by (alertname, severity, rank) (max_over_time({fired}[{step_s}s]))"


def past_alerts(
    curves: Sequence[Curve], run_id: str, end_s: float, step_s: int
) -> tuple[PastAlert, ...]:
    """Those that were over before `end_s`, in the order in which they were cleared."""
    found = [
        PastAlert(_alert(curve, run_id, began_s - step_s), over_s)
        for curve in curves
        for began_s, over_s in _spans(curve.times, step_s)
        if over_s + step_s <= end_s
    ]
    return tuple(sorted(found, key=lambda past: past.cleared_s)[-MOST:])


def _spans(times: Sequence[float], step_s: int) -> Iterator[tuple[float, float]]:
    """The first and the last time of each series of times without a gap."""
    began_s = before_s = None
    for at_s in times:
        if began_s is None or before_s is None:
            began_s = at_s
        elif at_s - before_s > 1.5 * step_s:
            yield began_s, before_s
            began_s = at_s
        before_s = at_s
    if began_s is not None and before_s is not None:
        yield began_s, before_s


def _alert(curve: Curve, run_id: str, raised_s: float) -> Alert:
    labels = {name: one_line(text, 100) for name, text in curve.labels.items()}
    kind = labels.get("alertname", "")
    subject = f"rank {labels['rank']}" if labels.get("rank") else f"run {run_id}"
    severity = labels.get("severity", "")
    finding = Finding(
        kind=kind,
        subject=subject,
        severity=Severity(severity) if severity in set(Severity) else Severity.WARNING,
        what="Raised by the rules of Prometheus",
        run_id=run_id,
    )
    return Alert(f"{kind}/{subject}", finding, raised_s)
