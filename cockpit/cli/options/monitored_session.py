"""Build the session of the screen, `record` and drills: all sources, alerts, a recorder."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cockpit.alerts import settings as alert_settings
from cockpit.config import file, paths
from cockpit.drills.probes.probe import ContextProber, Prober
from cockpit.model.error import UsageError
from cockpit.model.event import Event, Notice, RunSeen, SourceHealth
from cockpit.model.tracking import RunRef
from cockpit.recorder.reading.library import Library, Limits
from cockpit.recorder.writing.run_recorders import RunRecorders
from cockpit.session.monitored import MonitoredSession
from cockpit.session.session import Session, Source
from cockpit.sources.mlflow.settings import parse as mlflow_settings
from cockpit.sources.mlflow.source import MlflowSource
from cockpit.sources.polling.interval import Pace
from cockpit.sources.prometheus.discovery import finder
from cockpit.sources.prometheus.settings import parse as prometheus_settings
from cockpit.sources.prometheus.source import PrometheusSource
from cockpit.sources.ray.cluster import RaySource
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.train_runs import TrainRunsSource
from cockpit.sources.telemetry.source import TelemetrySource
from cockpit.store.run import RunView
from cockpit.store.store import Store

if TYPE_CHECKING:
    from cockpit.backends.protocol import Backend
    from cockpit.model.run import RunSummary

RECORDER_SETTINGS = ("enabled", "max_age_days", "max_bytes")


def session_on(cluster: Backend, *, record: str | None = None) -> MonitoredSession:
    """All sources of a cluster, its recorder and its alerts, as the configuration has them.

    `record`: the run to record, by id or name, or "" for all, whatever the configuration says.
    Not started. Raises UsageError for a setting that is not understood.
    """
    configured = file.read()
    prometheus = prometheus_settings(configured.tables.get("prometheus", {}), os.environ)
    mlflow = mlflow_settings(configured.tables.get("mlflow", {}), os.environ)
    alerts = alert_settings.parse(configured.tables.get("alerts", {}), configured.hooks)
    library = Library(paths.state_dir())
    telemetry_runs = _TelemetryRuns()
    pace = Pace() if cluster.ref.backend == "kuberay" else None

    def sources() -> Sequence[Source]:
        dashboard = Dashboard(cluster.dashboard)
        return (
            RaySource(dashboard, pace=pace),
            TelemetrySource(dashboard, pace=pace),
            TrainRunsSource(dashboard, telemetry_runs.ids, pace=pace),
            PrometheusSource(
                finder(prometheus, dashboard, cluster.dashboard),
                lambda: session.ask(run_refs),
                pace=pace,
            ),
            MlflowSource(mlflow, lambda: session.ask(run_refs), pace=pace),
        )

    def report(line: str) -> None:
        session.dispatch(
            Notice(
                at_s=session.clock(),
                source="recorder",
                kind="Recording",
                name=cluster.ref.name,
                reason="Recorder",
                message=line,
                warning=True,
            )
        )

    session = MonitoredSession(
        cluster,
        sources,
        recording=_run_recorders(library, configured.tables.get("recorder", {}), report, record),
        alerts=alerts,
        past=lambda: past(library),
        pace=pace,
        listeners=(telemetry_runs.on_event,),
    )
    return session


def prober_on(session: Session) -> Prober:
    """The prober of drills, with the Prometheus of the configuration."""
    configured = file.read().tables.get("prometheus", {})
    route = session.backend.dashboard
    find = finder(prometheus_settings(configured, os.environ), Dashboard(route), route)
    return ContextProber(session, find)


def past(library: Library) -> Sequence[RunSummary]:
    """The summaries of the recordings that can be read."""
    return [one.summary for one in library.list() if not one.trouble]


def run_refs(store: Store) -> Sequence[RunRef]:
    """The runs, for sources that query other systems about them."""
    return [
        RunRef(
            run.id,
            run.name,
            run.started_s or None,
            run.ended_s,
            submission_id=run.submission_id,
            first_point_s=_first_point_s(run),
            gpus=tuple(
                {
                    (rank.placement.node_ip, gpu)
                    for rank in run.ranks.values()
                    if rank.placement is not None
                    for gpu in rank.placement.gpu_ids
                }
            ),
        )
        for run in store.runs.values()
    ]


def _first_point_s(run: RunView) -> float | None:
    begun = [times[0] for name in run.curves if len(times := run.curves[name].times)]
    return min(begun, default=None)


class _TelemetryRuns:
    """The runs in the telemetry, and their drivers' jobs."""

    def __init__(self) -> None:
        self._ids: set[str] | None = None

    def on_event(self, event: Event) -> None:
        if event.source != "telemetry":
            return
        if isinstance(event, SourceHealth | RunSeen) and self._ids is None:
            self._ids = set()
        if isinstance(event, RunSeen) and self._ids is not None:
            self._ids |= {event.run_id, event.job_id} - {""}

    def ids(self) -> set[str] | None:
        """None before the first event of telemetry."""
        return self._ids


def _run_recorders(
    library: Library, table: Mapping[str, Any], report: Callable[[str], None], record: str | None
) -> RunRecorders | None:
    """None when recording is switched off. Raises UsageError for an unknown setting."""
    for name, value in table.items():
        if name not in RECORDER_SETTINGS:
            raise UsageError(
                f"[recorder] is not understood: there is no {name!r}.",
                f"Known are: {', '.join(RECORDER_SETTINGS)}.",
                "cockpit config edit opens it.",
            )
        is_truth = isinstance(value, bool)
        if (name == "enabled") != is_truth or not (is_truth or isinstance(value, int | float)):
            raise UsageError(
                f"[recorder] is not understood: {name} = {value!r}.",
                "enabled is true or false, the others are numbers.",
                "cockpit config edit opens it.",
            )
    if table.get("enabled") is False and record is None:
        return None
    limits = Limits()
    return RunRecorders(
        library,
        Limits(
            float(table.get("max_age_days", limits.max_age_days)),
            int(table.get("max_bytes", limits.max_bytes)),
        ),
        only=record or "",
        told=report,
    )
