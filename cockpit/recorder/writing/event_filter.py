"""Filter the events of a run's recording: those of the run and the cluster, each state once.

Sources repeat their state, and most of the stream is repetition. Values that change all the time
(such as the load of the nodes) are recorded every few seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from cockpit.model.event import (
    AlertCleared,
    AlertRaised,
    ClusterSeen,
    ClustersListed,
    Event,
    GpuActivityListed,
    GroupsListed,
    JobsListed,
    KubernetesNodesListed,
    LogLines,
    MemoryKillsListed,
    NodesListed,
    Notice,
    PodsListed,
    PodTrafficListed,
    QueuesListed,
    RunSeen,
    ServeListed,
    ServeMeasured,
    SourceHealth,
    TrackedRunsListed,
    TrialsListed,
)
from cockpit.model.run import Trial

HEALTH_EVERY_S = 4.0
"""A source that stays well is written this often: a replay calls it stale after 5 s."""
LISTED_EVERY_S = 10.0
LOG_BYTES_AT_ONCE = 1 << 20
LOG_BYTES_PER_S = 200.0
"""A log may write a megabyte at once, and this much in the long run."""

STATES = (
    ClusterSeen,
    GroupsListed,
    PodsListed,
    JobsListed,
    QueuesListed,
    MemoryKillsListed,
    ServeListed,
    RunSeen,
)
"""Recorded when they change."""
BUSY = (
    NodesListed,
    KubernetesNodesListed,
    GpuActivityListed,
    PodTrafficListed,
    ServeMeasured,
    TrackedRunsListed,
)
"""Recorded when they change, at most every LISTED_EVERY_S."""


class EventFilter:
    """Filter for one run; by default the first one in the stream. `now_s` is monotonic."""

    def __init__(self, run_id: str = "") -> None:
        self.run_id = run_id
        self._submission = ""
        self._last: dict[tuple[str, str], tuple[float, Event]] = {}
        self._late: dict[tuple[str, str], Event] = {}
        self._log_bytes = float(LOG_BYTES_AT_ONCE)
        self._log_at_s: float | None = None
        self._log_skipped = 0

    def kept(self, event: Event, now_s: float) -> Iterator[Event]:
        """Return what to write now: the event, nothing, or the lines that the limit allows."""
        if not self._concerns(event):
            return
        if isinstance(event, LogLines):
            yield from self._log(event, now_s)
        elif isinstance(event, SourceHealth):
            if self._is_news(event, now_s):
                yield event
        elif isinstance(event, STATES):
            key = (type(event).__name__, event.source)
            before = self._last.get(key)
            if before is None or _differ(before[1], event):
                self._last[key] = (now_s, event)
                yield event
        elif isinstance(event, BUSY):
            yield from self._busy(event, now_s)
        else:
            yield event

    def rest(self) -> Iterator[Event]:
        """Return the events that were held back, at the end."""
        yield from self._late.values()
        self._late.clear()

    def _concerns(self, event: Event) -> bool:
        if isinstance(event, RunSeen):
            self.run_id = self.run_id or event.run_id
            if event.run_id == self.run_id:
                self._submission = event.submission_id or self._submission
        if isinstance(event, ClustersListed):
            return False
        of = run_of(event)
        return not of or not self.run_id or of == self.run_id

    def _is_news(self, event: SourceHealth, now_s: float) -> bool:
        key = ("SourceHealth", event.source)
        before = self._last.get(key)
        if before is not None:
            at_s, before_event = before
            assert isinstance(before_event, SourceHealth)
            same = (before_event.ok, before_event.error, before_event.absent) == (
                event.ok,
                event.error,
                event.absent,
            )
            if same and 0 <= now_s - at_s < HEALTH_EVERY_S:
                return False
        self._last[key] = (now_s, event)
        return True

    def _busy(self, event: Event, now_s: float) -> Iterator[Event]:
        key = (type(event).__name__, event.source)
        before = self._last.get(key)
        if before is not None:
            at_s, before_event = before
            if not _differ(before_event, event):
                self._late.pop(key, None)
                return
            others = isinstance(event, NodesListed) and _living(event) != _living(before_event)
            if 0 <= now_s - at_s < LISTED_EVERY_S and not others:
                self._late[key] = event
                return
        self._late.pop(key, None)
        self._last[key] = (now_s, event)
        yield event

    def _log(self, event: LogLines, now_s: float) -> Iterator[Event]:
        kind, _, job = event.stream.partition(":")
        if kind != "job" or self._submission not in ("", job):
            return  # before the job of the run is known, it may be any
        passed = 0.0 if self._log_at_s is None else max(0.0, now_s - self._log_at_s)
        self._log_at_s = now_s
        room = min(LOG_BYTES_AT_ONCE, self._log_bytes + passed * LOG_BYTES_PER_S)
        kept: list[str] = []
        for line in event.lines:
            size = len(line) + 1
            if size > room:
                self._log_skipped += 1
                continue
            if self._log_skipped:
                kept.append(f"… {self._log_skipped} lines are not in the recording")
                self._log_skipped = 0
            room -= size
            kept.append(line)
        self._log_bytes = room
        if kept:
            yield event if len(kept) == len(event.lines) else replace(event, lines=tuple(kept))


def run_of(event: Event) -> str:
    """The id of the event's run; empty when it belongs to the cluster."""
    if isinstance(event, AlertRaised):
        return event.alert.finding.run_id
    run_id: str = getattr(event, "run_id", "")
    return run_id


def _differ(before: Event, after: Event) -> bool:
    """Whether more than the time has changed."""
    return replace(before, at_s=after.at_s) != after


def _living(event: Event) -> set[tuple[str, bool]]:
    assert isinstance(event, NodesListed)
    return {(node.id, node.alive) for node in event.nodes}


NOTICES = 50
ENDED_TRIALS = 100
"""Of an experiment, besides the active ones. A sweep has a recording for each of its runs: with
all trials in each of them their size would grow with the square of their number."""

_LISTED = (
    ClusterSeen,
    GroupsListed,
    PodsListed,
    NodesListed,
    KubernetesNodesListed,
    JobsListed,
    QueuesListed,
    MemoryKillsListed,
    GpuActivityListed,
    PodTrafficListed,
    ServeListed,
    ServeMeasured,
    TrackedRunsListed,
    SourceHealth,
)


class ClusterSnapshot(Struct):
    """Folds events in, and returns the few that describe the present."""

    _listed: dict[tuple[str, str], Event] = field(default_factory=dict)
    _trials: dict[str, dict[str, Trial]] = field(default_factory=dict)
    _ended_trials: dict[str, dict[str, Trial]] = field(default_factory=dict)
    _experiments: dict[str, TrialsListed] = field(default_factory=dict)
    _alerts: dict[str, AlertRaised] = field(default_factory=dict)
    _notices: deque[Notice] = field(default_factory=lambda: deque(maxlen=NOTICES))

    def take(self, event: Event) -> None:
        if isinstance(event, _LISTED):
            self._listed[type(event).__name__, event.source] = event
        elif isinstance(event, TrialsListed):
            self._take_trials(event)
        elif isinstance(event, AlertRaised):
            self._alerts[event.alert.id] = event
        elif isinstance(event, AlertCleared):
            self._alerts.pop(event.alert_id, None)
        elif isinstance(event, Notice):
            self._notices.append(event)

    def events(self) -> Iterator[Event]:
        yield from self._listed.values()
        yield from self._notices
        yield from self._alerts.values()
        for name, event in self._experiments.items():
            trials = (*self._ended_trials[name].values(), *self._trials[name].values())
            # Under another source than the stream's: the stream reports them again, and they would
            # be taken for recorded ones.
            yield replace(event, trials=trials, source="recorder")

    def _take_trials(self, event: TrialsListed) -> None:
        self._experiments[event.experiment] = event
        going = self._trials.setdefault(event.experiment, {})
        ended = self._ended_trials.setdefault(event.experiment, {})
        for trial in event.trials:
            going.pop(trial.id, None)
            ended.pop(trial.id, None)
            (ended if trial.status.is_over else going)[trial.id] = trial
        while len(ended) > ENDED_TRIALS:
            del ended[next(iter(ended))]
