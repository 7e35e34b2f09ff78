"""Opens a recorder for each run that a session watches, and passes events to them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from cockpit.model.clock import server_time
from cockpit.model.event import Event, JobsListed, RunSeen, SourceHealth
from cockpit.recorder.reading.library import Library, Limits
from cockpit.recorder.writing.event_filter import ClusterSnapshot, run_of
from cockpit.recorder.writing.recorder import Recorder
from cockpit.recorder.writing.recorder_thread import WEIGHT_AT_MOST, RecorderThread, weight_of
from cockpit.recorder.writing.resume_index import STREAM
from cockpit.store.store import Store

LINGER_S = 40.0
"""After the end of a run: its job's status, its last checkpoint and what follows of it."""
PAST_TIMEOUT_S = 10.0
"""How long events are held back when telemetry does not report that it has read the past."""
PAST_WEIGHT = WEIGHT_AT_MOST // 2
ENDED_KEPT = 10_000
PRUNE_EVERY_S = 60.0


class Past:
    """Events received before telemetry has read its stream up to the time of attachment."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._begun_s: float | None = None
        """When the first run was received (monotonic)."""
        self._weight = 0
        self._states: dict[str, RunSeen] = {}
        self._jobs: dict[str, float] = {}
        """By id of a job that is over: when it ended."""

    @property
    def has_runs(self) -> bool:
        return self._begun_s is not None

    def take(self, event: Event, now_s: float) -> None:
        """`now_s`: monotonic."""
        if isinstance(event, RunSeen):
            self._begun_s = now_s if self._begun_s is None else self._begun_s
            before = self._states.get(event.run_id)
            if before is None or event.at_s >= before.at_s:
                self._states[event.run_id] = event
        elif isinstance(event, JobsListed):
            over = (job for job in event.jobs if job.status.is_over)
            self._jobs.update((job.id, job.ended_s or event.at_s) for job in over)
        self.events.append(event)
        self._weight += weight_of(event)
        if self._weight > PAST_WEIGHT:
            ended = self.ended()
            self.events = [each for each in self.events if run_of(each) not in ended]
            self._weight = sum(map(weight_of, self.events))

    def is_over(self, event: Event | None, now_s: float) -> bool:
        """Whether `event` ends it, or it has taken too long or too much. `now_s`: monotonic."""
        if isinstance(event, SourceHealth) and event.source == STREAM and event.ok:
            return True
        timed_out = self._begun_s is not None and now_s - self._begun_s >= PAST_TIMEOUT_S
        return timed_out or self._weight > PAST_WEIGHT

    def ended(self) -> dict[str, float]:
        """The runs that are over, each with its end in Unix seconds."""
        found = {}
        for run_id, seen in self._states.items():
            if seen.state.is_over:
                found[run_id] = seen.at_s
            elif seen.submission_id in self._jobs:
                found[run_id] = max(seen.at_s, self._jobs[seen.submission_id])
        return found


class RunRecorders:
    """Record the runs of a session.

    Pass `on_event` to the Session, and call `close` after the session's `close`. A run is recorded
    from when it is first seen until shortly after its end. Runs that ended before are not recorded:
    events are held back until telemetry has read its history, and then only active runs and those
    with an incomplete recording are recorded. A run in `only` is always recorded.

    `on_message` gets a message for each problem, and again when it is over, from any thread. One
    thread writes all files and has few of them open (see `RecorderThread`).
    """

    def __init__(
        self,
        library: Library,
        limits: Limits | None = None,
        *,
        only: str = "",
        clock: Callable[[], float] = server_time,
        monotonic: Callable[[], float] = time.monotonic,
        on_message: Callable[[str], None] | None = None,
    ) -> None:
        """`only`: a run's id or name; others are not recorded."""
        self.library, self.limits = library, limits or Limits()
        self._only, self._clock, self._monotonic, self._on_message = (
            only,
            clock,
            monotonic,
            on_message,
        )
        self._snapshot = ClusterSnapshot()
        self._thread = RecorderThread()
        self._recorders: dict[str, Recorder] = {}
        self._ended: dict[str, tuple[float, float]] = {}
        """By run that is over: the moment of its end, and when that was received (monotonic)."""
        self._lingering: dict[str, None] = {}
        """Runs of `_ended` that are still recorded, in the order of their ends."""
        self._finished: list[Recorder] = []
        self._past: Past | None = Past()
        self._pruned_s: float | None = None
        self._lock = threading.Lock()

    def on_event(self, event: Event) -> None:
        """Any event of the session, from any thread. Never waits for a disk."""
        with self._lock:
            if self._past is None:
                self._record(event)
                return
            self._past.take(event, self._monotonic())
            self._try_past(event)

    def recorders(self) -> dict[str, Recorder]:
        """The active ones, by run id."""
        with self._lock:
            return dict(self._recorders)

    def summarise(self, store: Store) -> None:
        """Write the store's facts about the runs into the recordings. Not on a source's loop.

        Called periodically, so that a killed recorder also leaves a summary. It also ends the
        recording of a run that never reports its end: its job was stopped.
        """
        from cockpit.insight.metrics.summary import summary

        with self._lock:
            self._try_past(None)
        for run_id, recorder in self.recorders().items():
            if (run := store.runs.get(run_id)) is None:
                continue
            recorder.summarise(summary(store, run))
            if run.state.is_over and run.ended_s is not None:
                with self._lock:
                    self._run_ended(run_id, run.ended_s)
        with self._lock:
            self._end()

    def close(self, store: Store | None = None) -> None:
        """Write what is there and wait for it; of `store`, the last summaries."""
        with self._lock:
            self._end_past()
        if store is not None:
            self.summarise(store)
        with self._lock:
            ending = [*self._recorders.values(), *self._finished]
            self._recorders, self._finished = {}, []
        for recorder in ending:
            recorder.finish()
        for recorder in ending:
            recorder.close()

    def _try_past(self, event: Event | None) -> None:
        past = self._past
        if past is None:
            return
        if past.is_over(event, self._monotonic()):
            self._end_past()
        elif not past.has_runs:
            # Undecided: the snapshot contains these events.
            for each in past.events:
                self._snapshot.take(each)
            past.events.clear()

    def _end_past(self) -> None:
        """Record the active runs, and complete what an earlier recorder left unfinished."""
        past, self._past = self._past, None
        if past is None:
            return
        ended = {} if self._only else past.ended()
        unfinished: dict[str, list[Event]] = {run_id: [] for run_id in ended}
        for event in past.events:
            if (run_id := run_of(event)) in ended:
                unfinished[run_id].append(event)
            else:
                self._record(event)
        now = self._monotonic()
        for run_id, events in unfinished.items():
            self._ended[run_id] = (ended[run_id], now)
            recorder = self._new(run_id, only_continue=True)
            for event in events:
                recorder.take(event)
            self._finish(recorder)

    def _record(self, event: Event) -> None:
        if isinstance(event, RunSeen):
            self._run_seen(event)
        if run_id := run_of(event):
            if (recorder := self._recorders.get(run_id)) is not None:
                recorder.take(event)
        else:
            for recorder in self._recorders.values():
                recorder.take(event)
        self._snapshot.take(event)
        self._end()

    def _run_seen(self, event: RunSeen) -> None:
        run_id = event.run_id
        if self._only not in ("", run_id, event.name):
            return
        if event.state.is_over:
            if run_id in self._recorders:
                self._run_ended(run_id, event.at_s)
            return
        ended = self._ended.get(run_id)
        if run_id in self._recorders or (ended is not None and event.at_s <= ended[0]):
            if ended is not None and event.at_s > ended[0]:
                del self._ended[run_id]  # its driver was restarted
                self._lingering.pop(run_id, None)
            return
        self._ended.pop(run_id, None)
        now_s = self._clock()
        recorder = self._recorders[run_id] = self._new(run_id)
        for state in self._snapshot.events():
            recorder.take(state, when_s=now_s)
        now = self._monotonic()
        if self._pruned_s is None or now - self._pruned_s >= PRUNE_EVERY_S:
            self._pruned_s = now
            self._thread.call(self._prune)

    def _new(self, run_id: str, *, only_continue: bool = False) -> Recorder:
        return Recorder(
            self.library.path_of(run_id),
            run_id=run_id,
            clock=self._clock,
            on_message=self._on_message,
            thread=self._thread,
            only_continue=only_continue,
        )

    def _run_ended(self, run_id: str, at_s: float) -> None:
        if run_id not in self._ended:
            self._ended[run_id] = (at_s, self._monotonic())
            self._lingering[run_id] = None
            while len(self._ended) > ENDED_KEPT:
                del self._ended[next(iter(self._ended))]

    def _end(self) -> None:
        """End the recordings of runs that were over LINGER_S ago."""
        while self._lingering:
            run_id = next(iter(self._lingering))
            if self._monotonic() - self._ended[run_id][1] < LINGER_S:
                return
            del self._lingering[run_id]
            self._finish(self._recorders.pop(run_id))

    def _finish(self, recorder: Recorder) -> None:
        recorder.finish()
        self._finished = [one for one in self._finished if one.going] + [recorder]

    def _prune(self) -> None:
        try:
            # By the clock of this host, as the files' times: a cluster's may be years ahead.
            pruned = self.library.prune(self.limits)
        except OSError as error:
            self._report(f"Old recordings cannot be removed: {error}.")
            return
        if removed := pruned.removed:
            names = ", ".join(path.stem for path in removed[:3]) + (
                ", …" if len(removed) > 3 else ""
            )
            self._report(f"Deleted {len(removed)} recordings (retention limit): {names}.")
        if errors := pruned.errors:
            more = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
            self._report(f"Old recordings cannot be removed: {errors[0]}{more}.")

    def _report(self, line: str) -> None:
        if self._on_message is not None:
            self._on_message(line)
