"""The past of a deleted cluster as events: its runs from telemetry, its jobs and its nodes.

The collector of the History Server stores the complete log directory of each node, so that the
files of cockpit's telemetry are among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from cockpit.model.cluster import ClusterHealth, ClusterRef, Node
from cockpit.model.error import CockpitError
from cockpit.model.event import ClusterSeen, Event, JobsListed, NodesListed, SourceHealth
from cockpit.model.text import one_line
from cockpit.sources.history_server.server import Session
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.train_runs import TrainRunsSource
from cockpit.sources.telemetry.events import event_of
from cockpit.sources.telemetry.files import rows
from cockpit.sources.telemetry.records import Progress
from cockpit.sources.telemetry.source import LINE_LIMIT_BYTES
from training.telemetry.wire import FILE_PATTERN

SOURCE = "history"
MOST_NODES = 500
"""The number of nodes whose logs are searched for telemetry; it is on the head."""


class Past(Struct, frozen=True):
    """What is left of a session, in order of time."""

    events: tuple[Event, ...]
    end_s: float
    """Of the newest event; 0 if there is none with a time."""
    missing: str = ""
    """One line: what could not be read."""


async def past_events(dashboard: Dashboard, session: Session) -> Past:
    """Read the session. Raises CockpitError if its nodes or jobs cannot be read."""
    nodes, jobs = await dashboard.nodes(), await dashboard.jobs()
    told, missing = await _telemetry(dashboard, nodes)
    train = await _train_runs(dashboard, told)
    timed = sorted((*told, *train), key=lambda event: event.at_s)
    times = [job.ended_s or job.started_s or 0.0 for job in jobs]
    end_s = max([*times, *(event.at_s for event in timed)], default=0.0)
    begin_s = timed[0].at_s if timed else end_s
    version = await dashboard.version()
    ref = ClusterRef("kuberay", session.cluster, session.namespace)
    state, why = ClusterHealth.DOWN, f"deleted; session {session.name} of the History Server"
    first = ClusterSeen(
        at_s=begin_s, source=SOURCE, ref=ref, health=state, message=why, ray_version=version.ray
    )
    last: tuple[Event, ...] = (
        NodesListed(at_s=end_s, source=SOURCE, nodes=nodes),
        JobsListed(at_s=end_s, source=SOURCE, jobs=jobs),
    )
    return Past((first, *timed, *last), end_s, missing)


async def _telemetry(dashboard: Dashboard, nodes: Sequence[Node]) -> tuple[list[Event], str]:
    """The events of all streams, and what is missing of them."""
    found: list[Event] = []
    missing: list[str] = []
    for node in _heads_first(nodes):
        for files in rows(await dashboard.log_files(node.id, FILE_PATTERN)).values():
            progress = Progress()
            for number in sorted(files):
                try:
                    found += await _file(dashboard, node.id, files[number], progress)
                except CockpitError as error:
                    missing.append(f"{files[number]}: {one_line(error.why or error.what)}")
            if progress.complaint:
                missing.append(f"{files[min(files)]}: {progress.complaint}")
        if found and node.is_head:
            break
    return found, "; ".join(missing[:3])


async def _file(dashboard: Dashboard, node_id: str, name: str, progress: Progress) -> list[Event]:
    found: list[Event] = []
    progress.begin(whole=True)
    async with dashboard.stream_log(
        node_id, name, lines=-1, follow=False, limit_bytes=LINE_LIMIT_BYTES, torn=True
    ) as batches:
        async for batch in batches:
            for line in batch:
                record = progress.take(line)
                event = event_of(record) if record is not None else None
                if event is not None:
                    found.append(event)
    return found


def _heads_first(nodes: Iterable[Node]) -> list[Node]:
    return sorted(nodes, key=lambda node: not node.is_head)[:MOST_NODES]


async def _train_runs(dashboard: Dashboard, told: Sequence[Event]) -> list[Event]:
    """The runs that Ray Train's own state reports and telemetry does not."""
    known = {run_id for event in told if (run_id := getattr(event, "run_id", ""))}
    source = TrainRunsSource(dashboard, lambda: known, awaited_s=0.0)
    return [event async for event in source.poll() if not isinstance(event, SourceHealth)]
