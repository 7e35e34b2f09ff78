"""Many ranks on a simulated clock, from their watchdogs over the wire to the verdict.

Each rank has a real watchdog; what torch's flight recorder and the interpreter would return is
given. The ranks step once a second, until one of them stays in the data loader.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from unittest.mock import patch

from cockpit.insight.hang.types import Confidence, Verdict
from cockpit.insight.hang.verdict import verdict
from cockpit.model.event import AttemptStarted, RunSeen
from cockpit.model.run import Placement, RunState
from cockpit.sources.telemetry.events import event_of
from cockpit.store.store import Store
from training.telemetry import wire
from training.telemetry.hang import flight_recorder, watchdog
from training.telemetry.hang.flight_recorder import Read
from training.telemetry.hang.watchdog import Watchdog
from training.telemetry.head.hang_round import HangRound

STEPS, LAST_S = 40, 120
START_S = 1_763_712_000.0
WAITING = wire.Stack(
    frames=("all_reduce (torch/distributed/distributed_c10d.py:1)", "loop (train.py:13)"), user=1
)
LOADING = wire.Stack(
    frames=("read (train.py:7)", "loop (train.py:11)"), user=0, call="lock.acquire"
)


@dataclass
class Found:
    verdict: Verdict | None = None
    after_s: float = 0.0
    """From the last progress of all ranks to the first verdict of at least medium confidence."""
    lines: list[int] = field(default_factory=list)
    """The bytes of each line of dumps."""


class _Ranks:
    """The rank that is polled, and what its process would return."""

    def __init__(self, world: int, late: int) -> None:
        self.world, self.late = world, late
        self.rank, self.step, self.now_s = 0, 0, 0.0

    def called(self) -> int:
        return min(self.step, STEPS) + (self.step > STEPS and self.rank != self.late)

    def read(self) -> Read:
        group = wire.ProcessGroup(
            name="0", description="default_pg", members=tuple(range(self.world))
        )
        is_late = self.rank == self.late
        reached = wire.Reached(group=0, enqueued=STEPS + 1 - is_late, completed=STEPS)
        waits = wire.Collective(
            group=0,
            seq=STEPS + 1,
            op="all_reduce",
            shape="float32 [1024]",
            age_s=self.now_s - STEPS - 1,
        )
        return (group,), (reached,), () if is_late else (waits,), ""

    def stacks(self, owner: int | None) -> tuple[tuple[wire.Thread, ...], tuple[wire.Stack, ...]]:
        thread = wire.Thread(name="TrainingThread(loop)", stack=0, state="S", is_training=True)
        return (thread,), (LOADING if self.rank == self.late else WAITING,)


def hung(world: int = 1_000, late: int = 777, clocks_apart_s: float = 0.0) -> Found:
    """Let rank `late` of `world` ranks be stuck; their clocks differ by up to `clocks_apart_s`."""
    ranks, found, store = _Ranks(world, late), Found(), running(world)
    collected = HangRound("r", 1, range(world), clock=lambda: ranks.now_s)

    def send(record: wire.Hang) -> None:
        [dump] = record.dumps
        skew_s = clocks_apart_s * dump.rank / world
        at_s = START_S + ranks.now_s + skew_s
        collected.take(replace(record, dumps=(replace(dump, t=at_s),)))

    with (
        patch.object(flight_recorder, "called", ranks.called),
        patch.object(flight_recorder, "read", ranks.read),
        patch.object(watchdog, "stacks", ranks.stacks),
        patch.object(watchdog, "_usage", lambda: (0.0, 0.0, 0.0)),  # this process is busy
    ):
        dogs = [
            Watchdog("r", rank, 1, lambda: 0, send, clock=lambda: ranks.now_s)
            for rank in range(world)
        ]
        for second in range(1, LAST_S):
            ranks.now_s, ranks.step = float(second), second
            for ranks.rank, dog in enumerate(dogs):
                dog.poll()
            if (body := collected.tick()) is None:
                continue
            line = wire.encode(wire.Record(second, START_S + second, body))
            found.lines.append(len(line))
            read(store, line)
            judged = verdict(store.runs["r"], START_S + second)
            if judged is not None and judged.confidence is not Confidence.LOW:
                found.verdict, found.after_s = judged, second - STEPS
                break
    return found


def running(world: int) -> Store:
    """With a run `r` of that many ranks."""
    store = Store()
    store.apply(RunSeen(at_s=1.0, source="t", run_id="r", name="", state=RunState.RUNNING))
    places = tuple(Placement(rank, "", "", 1) for rank in range(world))
    store.apply(AttemptStarted(at_s=1.0, source="t", run_id="r", attempt=1, placements=places))
    return store


def read(store: Store, line: str) -> None:
    record = wire.decode(line)
    assert record is not None
    event = event_of(record)
    assert event is not None
    store.apply(event)
