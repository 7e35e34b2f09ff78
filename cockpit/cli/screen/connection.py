"""What the UI works on: a session on a backend, its actions and its logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from cockpit.actions.drills import DrillActions
from cockpit.backends.pod_log import PodLogSource
from cockpit.backends.protocol import Backend
from cockpit.backends.run_log import RunLogSource
from cockpit.config import file
from cockpit.drills.plan.plan import parse_blast_radius
from cockpit.model.cluster import ClusterPattern, is_protected
from cockpit.session import monitored
from cockpit.session.session import Session, Source
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.logs import job_log_source
from cockpit.sources.ray.rank_log import rank_log_source
from cockpit.store.selectors import current_run
from cockpit.store.store import Store
from cockpit.tui.changes.actions import READ_ONLY, Connection


def connection(
    backend: Backend,
    *,
    ends_with_screen: str = "",
    read_only: bool = False,
    protected: Sequence[ClusterPattern] = (),
) -> Connection:
    """Return a started session on the backend, with the actions of the UI.

    Unless `read_only`, faults that a drill left recently are undone; on a protected cluster they
    are reported, since undoing one may delete a pod or scale a group.
    """
    session = monitored.monitored_session_on(backend)
    session.start()
    limits = parse_blast_radius(file.read().tables.get("drills", {}))
    refusal = READ_ONLY if read_only else ""
    actions = DrillActions(session, monitored.prober_on(session), limits, refusal)
    if not read_only:
        actions.begin_undo(unasked=not is_protected(backend.ref, protected))
    return Connection(
        session=session,
        actions=actions,
        log_source=_log_source(backend, session),
        ends_with_screen=ends_with_screen,
    )


def _log_source(backend: Backend, session: Session) -> Callable[[str], Source | None]:

    def job_of_run(store: Store) -> str:
        run = current_run(store)
        return run.submission_id if run is not None else ""

    def job_and_pods(store: Store, run: str) -> tuple[str, list[str]]:
        of = store.runs.get(run)
        return of.submission_id if of is not None else "", [*store.pods]

    def source(stream: str) -> Source | None:
        kind, _, name = stream.partition(":")
        if kind == "job":
            return job_log_source(Dashboard(backend.dashboard), name)
        if kind == "rank":
            dashboard = Dashboard(backend.dashboard)
            return rank_log_source(dashboard, int(name), lambda: session.ask(job_of_run))
        if kind in ("pod", "previous"):
            return PodLogSource(backend, name, previous=kind == "previous")
        if kind == "run":
            return RunLogSource(backend, name, lambda: session.ask(partial(job_and_pods, run=name)))
        return None

    return source
