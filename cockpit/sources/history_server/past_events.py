"""The past of a deleted cluster as events: its runs from telemetry, its jobs and its nodes.

The collector of the History Server stores the complete log directory of each node, so that the
files of cockpit's telemetry are among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from cockpit.model.cluster import ClusterHealth, ClusterRef, Node
from cockpit.model.error import CockpitError
from cockpit.model.event import (
    ClusterSeen,
    Event,
    JobsListed,
    NodesListed,
    RunSeen,
    SourceHealth,
)
from cockpit.model.text import one_line
from cockpit.sources.history_server.server import Session, StoredDashboard
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.train_runs import TrainRunsSource
from cockpit.sources.telemetry.events import event_of
from cockpit.sources.telemetry.files import rows
from cockpit.sources.telemetry.records import Progress
from cockpit.sources.telemetry.source import LINE_LIMIT_BYTES
from training.telemetry.names import FILE_PATTERN

SOURCE = "history"
AFTER_LAST_S = 60.0
"""A run that was not over may have ended by the death of a node so long after its last record."""
MOST_NODES = 500
"""The number of nodes whose logs are searched for telemetry; it is on the head."""


class Past(Struct, frozen=True):
    """What is left of a session, in order of time."""

    events: tuple[Event, ...]
    end_s: float
    """Of the newest event; 0 if there is none with a time."""
    missing: str = ""
    """One line: what could not be read."""


async def past_events(dashboard: StoredDashboard, session: Session) -> Past:
    """Read the session. Raises CockpitError if its nodes or jobs cannot be read."""
    nodes, jobs = await dashboard.nodes_with_ends(), await dashboard.jobs()
    told, missing = await _telemetry(dashboard, [node for node, _ in nodes])
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
    listed = _nodes_listed(nodes, begin_s, _until_s(timed) if timed else end_s)
    last = JobsListed(at_s=end_s, source=SOURCE, jobs=jobs)
    between = sorted((*listed, *timed), key=lambda event: event.at_s)
    return Past((first, *between, last), end_s, missing)


def _until_s(timed: Sequence[Event]) -> float:
    """Until when the death of a node may concern a run: until the runs are over."""
    states = {event.run_id: event.state for event in timed if isinstance(event, RunSeen)}
    is_over = bool(states) and all(state.is_over for state in states.values())
    return timed[-1].at_s + (0.0 if is_over else AFTER_LAST_S)


def _nodes_listed(
    nodes: Sequence[tuple[Node, float | None]], begin_s: float, until_s: float
) -> Iterator[NodesListed]:
    """The nodes at the beginning, and after each death until then.

    Later deaths are left out: when a cluster is deleted, all of its nodes die.
    """
    ends = sorted({end_s for _, end_s in nodes if end_s is not None and begin_s < end_s <= until_s})
    for at_s in (begin_s, *ends):
        yield NodesListed(
            at_s=at_s,
            source=SOURCE,
            nodes=tuple(
                node if end_s is not None and end_s <= at_s else _alive(node)
                for node, end_s in nodes
            ),
        )


def _alive(node: Node) -> Node:
    return replace(node, alive=True, state_message="")


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
