"""The actor on the head node that writes the telemetry stream of one driver."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from training.telemetry.failsafe import guarded
from training.telemetry.head.disk_budget import make_room
from training.telemetry.head.hang_round import HangRound
from training.telemetry.head.stream import StreamFile
from training.telemetry.head.world import World
from training.telemetry.names import file_name
from training.telemetry.ray_train.phases import Phases
from training.telemetry.ray_train.trials import TrialRuns
from training.telemetry.settings import TICK_S
from training.telemetry.wire import AttemptEnd, AttemptStart, Body, Hang, Run, Steps, Tick

log = logging.getLogger(__name__)

NAMESPACE = "cockpit"


class Meter(Protocol):
    """A second output for the numbers, beside the stream."""

    def tick(self, run: str, steps: Sequence[Steps]) -> None: ...

    def wrote(self, body: Body) -> None: ...

    def learn(self, t: float, body: Body) -> None: ...

    def refresh(self) -> None: ...


class Aggregator:
    """Write the ranks' records and the lifecycle records, in the order in which they arrive.

    A record of a small world is in the file when `push` returns: the rank drops its copy then, and
    this process can be killed at any time. Of a large world a tick is written. Used as the class of
    the actor, and directly in tests.
    """

    def __init__(self, path: Path, tick_s: float = TICK_S, meter: Meter | None = None) -> None:
        self._stream = StreamFile(path)
        self._lock = threading.Lock()
        self._worlds: dict[str, World] = {}
        self._over: set[str] = set()
        """Runs that have ended."""
        self._hangs: dict[str, HangRound] = {}
        self._phases, self._trial_runs = Phases(), TrialRuns()
        for record in self._stream.snapshot.records():  # of the aggregator before this one
            self._learn(self._phases.wrote(record.body), again=True)
            self._trial_runs.wrote(record.body)
            if meter is not None:
                meter.learn(record.t, record.body)
        self._meter = meter
        self._unwritten: deque[tuple[float, Body]] = deque()
        self._is_full = False
        self._tick_s = tick_s
        self._end = threading.Event()
        self._ticker = threading.Thread(target=self._run, name="tick", daemon=True)
        self._ticker.start()

    def push(self, run: str, records: Sequence[Steps]) -> None:
        """From a rank, which sends a record again if it received no answer."""
        with self._lock:
            world = self._world(run)
            new = world.without_known(
                [record for record in records if not self._stream.had(run, record)]
            )
            world.take(new)
            for record in new[:1]:
                if (phase := self._phases.runs(run, record.attempt)) is not None:
                    self._append(_first_step_s(record), phase)
            is_over = run in self._over
            if is_over or not world.is_large:
                self._tick(now=is_over, only=run)
            if is_over:
                del self._worlds[run]

    def hang(self, record: Hang) -> None:
        """From a rank's watchdog."""
        with self._lock:
            if (round := self._hangs.get(record.run)) is not None:
                round.take(record)

    def note(self, run: str, attempt: int, rank: int, what: str, t: float) -> None:
        """From a rank: its current state (`witness`)."""
        with self._lock:
            if (body := self._phases.note(run, attempt, rank, what)) is not None:
                self._append(t, body)

    def write(self, t: float, body: Body) -> None:
        """From the controller; an end of an attempt comes after the records of its ranks."""
        with self._lock:
            for record in self._trial_runs.wrote(self._phases.wrote(body)):
                self._tick(now=isinstance(record, AttemptEnd), only=getattr(record, "run", ""))
                self._append(t, record)
                self._learn(record)
                if self._meter is not None:
                    self._meter.wrote(record)

    def close(self) -> None:
        self._end.set()
        self._ticker.join()
        with self._lock:
            self._tick(now=True)
            self._flush()
            self._stream.close()

    def _learn(self, body: Body, *, again: bool = False) -> None:
        """`again`: what the aggregator before this one has written."""
        if isinstance(body, AttemptStart):
            ranks = [worker.rank for worker in body.workers]
            self._world(body.run).begins(body.attempt, ranks)
            late = ranks if again else ()
            self._hangs[body.run] = HangRound(body.run, body.attempt, ranks, late=late)
        elif isinstance(body, AttemptEnd):
            self._forget(body.run)
        elif isinstance(body, Run) and body.state in _OVER:
            self._over.add(body.run)
            self._forget(body.run)
        elif isinstance(body, Run):  # a driver may continue a run that has ended
            self._over.discard(body.run)

    def _forget(self, run: str) -> None:
        self._worlds.pop(run, None)
        self._hangs.pop(run, None)

    def _world(self, run: str) -> World:
        return self._worlds.setdefault(run, World(run))

    def _run(self) -> None:
        while not self._end.wait(self._tick_s):
            self._beat()

    @guarded
    def _beat(self) -> None:
        with self._lock:
            self._tick()
            if self._meter is not None:
                self._meter.refresh()
            for round in self._hangs.values():
                if (hang := round.tick()) is not None:
                    self._append(time.time(), hang)
            self._flush()
            self._stream.keep()

    def _tick(self, *, now: bool = False, only: str = "") -> None:
        for run, world in list(self._worlds.items()):
            if only and run != only:
                continue
            tick = world.tick(now=now)
            if tick is None:
                continue
            self._append(time.time(), tick)
            if self._meter is not None:
                self._meter.tick(run, world.newest)

    def _append(self, t: float, body: Body) -> None:
        self._unwritten.append((t, body))
        self._flush()

    def _flush(self) -> None:
        """On a full disk training continues, and so does the stream when there is space again.

        Ticks are lost until then, but lifecycle records are kept until they can be written.
        """
        while self._unwritten:
            t, body = self._unwritten[0]
            try:
                self._stream.append(t, body)
            except OSError:
                if not self._is_full:
                    log.warning("telemetry: the stream could not be written", exc_info=True)
                self._is_full = True
                self._drop()
                return
            self._is_full = False
            self._unwritten.popleft()

    def _drop(self) -> None:
        kept = [(t, body) for t, body in self._unwritten if not isinstance(body, Tick)]
        kept = kept[-_UNWRITTEN_KEPT:]
        for _ in range(len(self._unwritten) - len(kept)):
            self._stream.lose()
        self._unwritten = deque(kept)


def _first_step_s(record: Steps) -> float:
    """When the first of the folded steps ended, if all took equally long."""
    return record.t - (record.step - record.first_step) * (record.step_time_s or 0.0)


_UNWRITTEN_KEPT = 1000

_OVER = frozenset({"ERRORED", "FINISHED", "ABORTED"})


class AggregatorActor(Aggregator):
    """The aggregator of one Ray job, which writes into the session's log directory of its node."""

    def __init__(self, job: str) -> None:
        from ray._private import worker  # the only way to the session's directory

        from training.telemetry.head.metrics import meter

        path = Path(worker._global_node.get_logs_dir_path()) / file_name(job)
        make_room(path.parent)
        super().__init__(path, meter=meter())


def connect(job: str) -> Any:
    """The handle of the job's aggregator, which is created on the head node if there is none.

    It lives as long as the process that created it; if it has died, connect again.
    """
    import ray

    return (
        ray.remote(AggregatorActor)
        .options(
            name=_name(job),
            namespace=NAMESPACE,
            get_if_exists=True,
            num_cpus=0,
            max_restarts=-1,
            # Only a head offers this resource. A soft affinity to the head's node is not always
            # kept: observed, an aggregator on a worker, where its file is not found.
            resources={"node:__internal_head__": 0.001},
        )
        .remote(job)
    )


def find(job: str) -> Any | None:
    """The handle of the job's aggregator, if it exists."""
    import ray

    try:
        return ray.get_actor(_name(job), namespace=NAMESPACE)
    except ValueError:
        return None


def _name(job: str) -> str:
    return f"telemetry-{job}"
