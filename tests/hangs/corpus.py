"""Runs of real gloo processes, watched through the wire: several at the same time.

The watchdog's times are divided by SPEED, so that a verdict takes seconds.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path

import torch.distributed as dist

from cockpit.insight.hang.types import Confidence, Verdict
from cockpit.insight.hang.verdict import verdict
from cockpit.model.event import AttemptStarted, RunSeen
from cockpit.model.run import Placement, RunState
from cockpit.sources.telemetry.events import event_of
from cockpit.store.store import Store
from tests.hangs.scenarios import HANGS, HEALTHY
from training.telemetry import wire
from training.telemetry.hang.watchdog import Times, Watchdog
from training.telemetry.head.hang_round import COLLECT_S, HangRound

SPEED = 5.0
TIMEOUT_S = 300.0
AT_ONCE = 6
TIMES = Times(
    poll_s=1.0 / SPEED,
    first_s=10.0 / SPEED,
    bound_s=20.0 / SPEED,
    slow_bound_s=120.0 / SPEED,
    unknown_first_s=30.0 / SPEED,
    unknown_bound_s=120.0 / SPEED,
    unknown_slow_bound_s=600.0 / SPEED,
    pauses_s=(8.0 / SPEED, 15.0 / SPEED, 30.0 / SPEED),
    usage_s=8.0 / SPEED,
    heartbeat_s=wire.HEARTBEAT_S / SPEED,
)
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.hangs.corpus"])


def rank_main(
    name: str, is_hang: bool, rank: int, world: int, folder: str, records: Connection
) -> None:
    """The process of a rank, with a separate group: a data loader's worker ends with it."""
    os.setsid()
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=world)
    scenario = name.partition(":")[0]
    run = HANGS[scenario][0] if is_hang else HEALTHY[scenario]
    watch = Watchdog(name, rank, 1, lambda: 0, lambda record: _emit(records, record), times=TIMES)
    watch.start()
    training = threading.Thread(
        target=run, args=(rank, Path(folder)), name="TrainingThread(run)", daemon=True
    )
    training.start()
    training.join()
    records.close()
    os._exit(0)


def _emit(records: Connection, record: wire.Hang) -> None:
    records.send_bytes(wire.encode(wire.Record(1, time.time(), record)).encode())


@dataclass
class Watched:
    """One run, as cockpit sees it."""

    name: str
    world: int
    began_s: float
    store: Store = field(default_factory=Store)
    verdict: Verdict | None = None
    """The first of at least medium confidence."""
    took_s: float = 0.0
    """From the last progress to the verdict, in the time of an unscaled watchdog."""
    dumps: int = 0
    ended: int = 0

    def __post_init__(self) -> None:
        self.store.apply(
            RunSeen(at_s=1.0, source="test", run_id=self.name, name="", state=RunState.RUNNING)
        )
        places = tuple(Placement(rank, "", "", 1) for rank in range(self.world))
        self.store.apply(
            AttemptStarted(at_s=1.0, source="test", run_id=self.name, attempt=1, placements=places)
        )
        self.round = HangRound(
            self.name,
            1,
            range(self.world),
            collect_s=COLLECT_S / SPEED,
            stale_s=wire.HEARTBEAT_SILENT_S / SPEED,
        )

    def take(self, line: bytes) -> None:
        record = wire.decode(line)
        assert record is not None
        assert isinstance(record.body, wire.Hang)
        self.round.take(record.body)

    def check(self) -> None:
        if (body := self.round.tick()) is None:
            return
        self.dumps += len(body.dumps)
        again = wire.decode(wire.encode(wire.Record(1, time.time(), body)))
        assert again is not None
        event = event_of(again)
        assert event is not None
        self.store.apply(event)
        found = verdict(self.store.runs[self.name], time.time())
        if found is not None and found.confidence is not Confidence.LOW and self.verdict is None:
            self.verdict = found
            self.took_s = (found.idle_s + COLLECT_S / SPEED) * SPEED

    @property
    def is_over(self) -> bool:
        return self.verdict is not None or self.ended == self.world


def played(
    names: Sequence[str], is_hang: bool, folder: Path, timeout_s: float = TIMEOUT_S
) -> dict[str, Watched]:
    """Run the scenarios, AT_ONCE together, until each has a verdict or has ended."""
    found: dict[str, Watched] = {}
    for start in range(0, len(names), AT_ONCE):
        found |= _together(names[start : start + AT_ONCE], is_hang, folder, timeout_s)
    return found


def _together(
    names: Sequence[str], is_hang: bool, folder: Path, timeout_s: float
) -> dict[str, Watched]:
    found: dict[str, Watched] = {}
    readers: dict[Connection, Watched] = {}
    processes, frozen = [], dict[str, int]()
    for name in names:
        watched = found[name] = Watched(name, int(name.partition(":")[2]), time.monotonic())
        (folder / name).mkdir()
        for rank in range(watched.world):
            reader, writer = _context.Pipe(duplex=False)
            arguments = (name, is_hang, rank, watched.world, str(folder / name), writer)
            process = _context.Process(target=rank_main, args=arguments, daemon=False)
            process.start()
            writer.close()
            readers[reader] = watched
            processes.append(process)
            if name.startswith("frozen") and rank == 1:
                frozen[name] = process.pid or 0
    try:
        _watch(found, readers, timeout_s, frozen)
    finally:
        for process in processes:
            if process.pid is not None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.join()
    return found


def _watch(
    found: dict[str, Watched],
    readers: dict[Connection, Watched],
    timeout_s: float,
    frozen: dict[str, int],
) -> None:
    began_s = time.monotonic()
    freeze_s: dict[str, float] = {}
    while time.monotonic() - began_s < timeout_s and not all(w.is_over for w in found.values()):
        for ready in wait([*readers], timeout=0.05):
            assert isinstance(ready, Connection)
            try:
                readers[ready].take(ready.recv_bytes())
            except EOFError:
                readers.pop(ready).ended += 1
                continue
            if (name := readers[ready].name) in frozen:
                freeze_s.setdefault(name, time.monotonic() + 3.0)  # it has had some steps by then
        for name in [name for name, at_s in freeze_s.items() if time.monotonic() >= at_s]:
            del freeze_s[name]
            os.kill(frozen.pop(name), signal.SIGSTOP)
        for watched in found.values():
            watched.check()
