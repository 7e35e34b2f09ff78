"""A session with all sources, alerts and a recorder, for the screen, `record` and drills."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cockpit.alerts import settings as alert_settings
from cockpit.alerts.monitor import AlertMonitor
from cockpit.alerts.settings import AlertSettings
from cockpit.backends.protocol import Backend
from cockpit.config import file, paths
from cockpit.drills.probes.external import ContextProber, Prober
from cockpit.model.clock import server_time
from cockpit.model.error import UsageError
from cockpit.model.event import Event, Notice, RunSeen, SourceHealth
from cockpit.model.run import RunSummary
from cockpit.model.tracking import RunRef
from cockpit.recorder.reading.library import Library, Limits
from cockpit.recorder.writing.run_recorders import RunRecorders
from cockpit.session.builder import failures_source, pace_of, polled_sources
from cockpit.session.session import Listener, Session, Source
from cockpit.sources.mlflow.settings import parse as mlflow_settings
from cockpit.sources.mlflow.source import MlflowSource
from cockpit.sources.polling.interval import Pace
from cockpit.sources.prometheus.discovery import finder
from cockpit.sources.prometheus.settings import parse as prometheus_settings
from cockpit.sources.prometheus.source import PrometheusSource
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.serve import ServeSource
from cockpit.sources.ray.train_runs import TrainRunsSource
from cockpit.store.run import RunView
from cockpit.store.selectors import pods_without_traffic
from cockpit.store.store import Store

RECORDER_SETTINGS = ("enabled", "max_age_days", "max_bytes")
SUMMARISE_EVERY_S = 10.0
"""The summary in a recording is at most this old when cockpit is killed."""


class MonitoredSession(Session):
    """`recording`: None records nothing. `past`: recorded runs to compare with."""

    def __init__(
        self,
        backend: Backend,
        sources: Callable[[], Sequence[Source]] = tuple,
        *,
        recording: RunRecorders | None = None,
        alerts: AlertSettings | None = None,
        past: Callable[[], Sequence[RunSummary]] = tuple,
        clock: Callable[[], float] = server_time,
        pace: Pace | None = None,
        listeners: Sequence[Listener] = (),
    ) -> None:
        if recording is not None:
            listeners = (*listeners, recording.on_event)
        super().__init__(backend, sources, clock=clock, pace=pace, listeners=listeners)
        self.recording = recording
        self._alerts = AlertMonitor(self.dispatch, lambda: self.store, alerts, past, clock)
        self._summarised_s = clock()

    @property
    def alerts(self) -> AlertMonitor:
        """The alert rules: their settings, and the recorded runs that they compare with."""
        return self._alerts

    def drain(self) -> bool:
        changed = super().drain()
        now_s = self.clock()
        self._alerts.check(now_s)
        is_new = 0 <= now_s - self._summarised_s < SUMMARISE_EVERY_S  # the clock may be set back
        if self.recording is not None and not is_new:
            self._summarised_s = now_s
            self.recording.summarise(self.store)
        return changed

    def close(self) -> None:
        super().close()
        self._alerts.close()
        if self.recording is not None:
            self.recording.close(self.store)


def monitored_session_on(cluster: Backend, *, record: str | None = None) -> MonitoredSession:
    """Return a session with all sources, the recorder and the alerts that are configured.

    `record`: the run to record, by id or name, or "" for all, independent of the configuration.
    Not started. Raises UsageError for a setting that is not understood.
    """
    configured = file.read()
    prometheus = prometheus_settings(configured.tables.get("prometheus", {}), os.environ)
    mlflow = mlflow_settings(configured.tables.get("mlflow", {}), os.environ)
    library = Library(paths.state_dir())
    telemetry_runs = _TelemetryRuns()
    pace = pace_of(cluster)

    def sources() -> Sequence[Source]:
        dashboard = Dashboard(cluster.dashboard)
        return (
            *polled_sources(dashboard, pace),
            failures_source(session, pace),
            TrainRunsSource(dashboard, telemetry_runs.ids, pace=pace),
            ServeSource(dashboard, pace=pace),
            PrometheusSource(
                finder(prometheus, dashboard, cluster.dashboard),
                lambda: session.ask(run_refs),
                lambda: session.ask(pods_without_traffic),
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
        alerts=alert_settings.configured(configured),
        past=library.summaries,
        pace=pace,
        listeners=(telemetry_runs.on_event,),
    )
    return session


def prober_on(session: Session) -> Prober:
    """Return the prober of drills, with the Prometheus that is configured."""
    configured = file.read().tables.get("prometheus", {})
    route = session.backend.dashboard
    find = finder(prometheus_settings(configured, os.environ), Dashboard(route), route)
    return ContextProber(session, find)


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
    """None when recording is switched off. Raises UsageError as `recorder_limits`."""
    limits = recorder_limits(table)
    if table.get("enabled") is False and record is None:
        return None
    return RunRecorders(library, limits, only=record or "", on_message=report)


def recorder_limits(table: Mapping[str, Any]) -> Limits:
    """From the table `[recorder]`. Raises UsageError for an unknown setting or a wrong value."""
    for name, value in table.items():
        if name not in RECORDER_SETTINGS:
            raise UsageError(
                f"[recorder] is not understood: there is no {name!r}.",
                f"Known are: {', '.join(RECORDER_SETTINGS)}.",
                "cockpit config edit opens it.",
            )
        is_truth = isinstance(value, bool)
        # Every recording is older, and larger, than a limit below 0.
        is_limit = not is_truth and isinstance(value, int | float) and 0 <= value < math.inf
        if not (is_truth if name == "enabled" else is_limit):
            raise UsageError(
                f"[recorder] is not understood: {name} = {value!r}.",
                "enabled is true or false, the others are numbers of 0 (no limit) or more.",
                "cockpit config edit opens it.",
            )
    limits = Limits()
    return Limits(
        float(table.get("max_age_days", limits.max_age_days)),
        int(table.get("max_bytes", limits.max_bytes)),
    )
