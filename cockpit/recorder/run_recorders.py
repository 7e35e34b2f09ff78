"""What a session gives its events to: it opens a recorder for each run that is watched."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from cockpit.model.event import (
    AlertCleared,
    AlertRaised,
    ClusterSeen,
    Event,
    GpuActivityListed,
    GroupsListed,
    JobsListed,
    MachinesListed,
    NodesListed,
    Notice,
    PodsListed,
    RunSeen,
    SourceHealth,
    TrackedRunsListed,
    TrialsListed,
)
from cockpit.model.run import Trial
from cockpit.recorder.library import Library, Limits
from cockpit.recorder.recorder import Recorder
from cockpit.store.store import Store

LINGER_S = 40.0
"""After the end of a run: its job's status, its last checkpoint and what follows of it."""
NOTICES = 50

_PRESENT = (
    ClusterSeen,
    GroupsListed,
    PodsListed,
    NodesListed,
    MachinesListed,
    JobsListed,
    GpuActivityListed,
    TrackedRunsListed,
    SourceHealth,
)


@dataclass(slots=True)
class Present:
    """The cluster as it was told last: what a recording begins with."""

    _listed: dict[tuple[str, str], Event] = field(default_factory=dict)
    _trials: dict[str, dict[str, Trial]] = field(default_factory=dict)
    _experiments: dict[str, TrialsListed] = field(default_factory=dict)
    _alerts: dict[str, AlertRaised] = field(default_factory=dict)
    _notices: deque[Notice] = field(default_factory=lambda: deque(maxlen=NOTICES))

    def take(self, event: Event) -> None:
        if isinstance(event, _PRESENT):
            self._listed[type(event).__name__, event.source] = event
        elif isinstance(event, TrialsListed):
            self._experiments[event.experiment] = event
            known = self._trials.setdefault(event.experiment, {})
            known.update((trial.id, trial) for trial in event.trials)
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
            # It comes out of the stream, which tells it again: under another name it is not taken
            # for something that the recording has already.
            yield replace(event, trials=tuple(self._trials[name].values()), source="recorder")


class RunRecorders:
    """Give `heard` to a Session; call `close` after the session's own.

    A run is recorded from the moment that it is seen until a while after its end. One that was over
    when it was first seen is not. `told` gets a sentence when something is wrong, and again when
    that is over; it may be called from any thread.
    """

    def __init__(
        self,
        library: Library,
        limits: Limits | None = None,
        *,
        only: str = "",
        clock: Callable[[], float] = time.time,
        told: Callable[[str], None] | None = None,
    ) -> None:
        """`only`: a run's id or name; others are not recorded."""
        self.library, self.limits = library, limits or Limits()
        self._only, self._clock, self._told = only, clock, told
        self._present = Present()
        self._recorders: dict[str, Recorder] = {}
        self._ended: dict[str, tuple[float, float]] = {}
        """By run that is over: the moment of its end, and when that was heard (monotonic)."""
        self._finished: list[Recorder] = []
        self._lock = threading.Lock()

    def heard(self, event: Event) -> None:
        """Any event of the session, from any thread. Never waits for a disk."""
        with self._lock:
            if isinstance(event, RunSeen):
                self._run_seen(event)
            for recorder in self._recorders.values():
                recorder.take(event)
            self._present.take(event)
            if self._ended:
                self._end()

    def recorders(self) -> dict[str, Recorder]:
        """Those that go on, by run id."""
        with self._lock:
            return dict(self._recorders)

    def summarise(self, store: Store) -> None:
        """Have the recordings say what the store can tell of their runs. Not from a source's loop.

        Called now and then, so that a recorder that is killed leaves a summary too. It is also how
        a run ends that never says so itself: its job was stopped.
        """
        from cockpit.insight.summary import summary

        for run_id, recorder in self.recorders().items():
            if (run := store.runs.get(run_id)) is None:
                continue
            recorder.summarise(summary(store, run))
            if run.state.is_over and run.ended_s is not None:
                with self._lock:
                    self._ended.setdefault(run_id, (run.ended_s, time.monotonic()))
        with self._lock:
            self._end()

    def close(self, store: Store | None = None) -> None:
        """Write what is there and wait for it; of `store`, the last summaries."""
        if store is not None:
            self.summarise(store)
        with self._lock:
            ending = [*self._recorders.values(), *self._finished]
            self._recorders, self._finished = {}, []
        for recorder in ending:
            recorder.finish()
        for recorder in ending:
            recorder.close()

    def _run_seen(self, event: RunSeen) -> None:
        run_id = event.run_id
        if self._only not in ("", run_id, event.name):
            return
        if event.state.is_over:
            if run_id in self._recorders:
                self._ended.setdefault(run_id, (event.at_s, time.monotonic()))
            return
        ended = self._ended.get(run_id)
        if run_id in self._recorders or (ended is not None and event.at_s <= ended[0]):
            if ended is not None and event.at_s > ended[0]:
                del self._ended[run_id]  # its driver came back
            return
        self._ended.pop(run_id, None)
        path, now_s = self.library.path_of(run_id), self._clock()
        recorder = Recorder(path, run_id=run_id, clock=self._clock, told=self._told)
        self._recorders[run_id] = recorder
        for known in self._present.events():
            recorder.take(known, when_s=now_s)
        threading.Thread(target=self._prune, name="cockpit-retention", daemon=True).start()

    def _end(self) -> None:
        now = time.monotonic()
        for run_id, (_, heard) in self._ended.items():
            if now - heard >= LINGER_S and run_id in self._recorders:
                recorder = self._recorders.pop(run_id)
                recorder.finish()
                self._finished = [one for one in self._finished if one.going] + [recorder]

    def _prune(self) -> None:
        try:
            gone = self.library.prune(self.limits, self._clock)
        except OSError as error:
            self._say(f"Old recordings cannot be removed: {error}.")
            return
        if gone:
            names = ", ".join(path.stem for path in gone[:3]) + (", …" if len(gone) > 3 else "")
            self._say(f"Let go of {len(gone)} old recordings, to keep within the limits: {names}.")

    def _say(self, line: str) -> None:
        if self._told is not None:
            self._told(line)
