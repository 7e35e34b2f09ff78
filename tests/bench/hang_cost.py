"""The cost of a rank's watchdog, and of a verdict: `python -m tests.bench.hang_cost`.

CPU time of the watchdog's thread while the rank makes progress: once a second it compares its
counters. Then of a dump, which is taken only when progress is late, with a full flight recorder.
And of the verdict on 1,000 ranks, and on 10,000 process groups, from the line of the stream on; and
after what time a hang of 1,000 simulated ranks is explained.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from cockpit.insight.hang.verdict import verdict
from tests.bench.table import Line, Table, load, show
from tests.hangs import simulated
from training.telemetry import wire
from training.telemetry.hang.watchdog import Watchdog
from training.telemetry.head.hang_round import HangRound

SHARE_TARGET = 0.0005
"""Of a step's time, which is at least this of a core: one poll a second."""
POLLS = 2_000
DUMPS = 20
GROUPS = 64
MANY_GROUPS = 600
RANKS = 1_000
HOSTILE_GROUPS = 10_000
CLOCKS_APART_S, VERDICT_WITHIN_S = 300.0, 30.0
FULL = 2_000
"""Entries of the flight recorder."""


def measured() -> Table:
    began = load()
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", f"file://{folder}/store", rank=0, world_size=1)
        lines.append(polling("a poll with 1 process group"))
        for _ in range(GROUPS - 1):
            dist.new_group([0])
        lines.append(polling(f"a poll with {GROUPS} process groups"))
        for _ in range(MANY_GROUPS - GROUPS):
            dist.new_group([0])
        lines.append(polling(f"a poll with {MANY_GROUPS:,} process groups (it reads 512)"))
        for _ in range(FULL):
            dist.all_reduce(torch.ones(1024))
        record = dumping(lines)
        dist.destroy_process_group()
    judging(lines, record)
    lines.append(of_many_groups())
    lines.append(detecting())
    return Table(
        "What the watchdog for hangs costs",
        f"CPU time of the watchdog of a rank, which polls once a second: the median of {POLLS} "
        f"polls and {DUMPS} dumps. The last row is the time from the last step to the verdict with "
        f"{RANKS:,} watchdogs on simulated clocks that differ by up to {CLOCKS_APART_S:g} s.",
        lines,
        began,
    )


def polling(text: str) -> Line:
    steps = 0

    def progress() -> int:
        nonlocal steps
        steps += 1
        return steps

    watchdog = Watchdog("r", 0, 1, progress, lambda record: None)
    took_s = statistics.median(_taken_s(watchdog.poll) for _ in range(POLLS))
    share = took_s
    value = f"{took_s * 1e6:.0f} µs, {share:.4%} of a core"
    return Line(text, value, f"≤ {SHARE_TARGET:.2%}", share <= SHARE_TARGET)


def dumping(lines: list[Line]) -> wire.Hang:
    sent: list[wire.Hang] = []
    watchdog = Watchdog("r", 0, 1, lambda: 0, sent.append)
    took_s = [_taken_s(lambda: watchdog._dump(30.0)) for _ in range(DUMPS)]
    size = len(wire.encode(wire.Record(1, 1.0, sent[-1])))
    lines.append(
        Line(
            f"a dump, {FULL:,} entries in the flight recorder",
            f"{statistics.median(took_s) * 1e3:.0f} ms, {size / 1024:.1f} KiB",
        )
    )
    return sent[-1]


def late_dump(rank: int, **of: Any) -> wire.Dump:
    """The second dump of a rank without progress for 21 s."""
    return wire.Dump(
        rank=rank, attempt=1, t=1.0, number=2, idle_s=21.0, bound_s=20.0, slow_bound_s=120.0, **of
    )


def judging(lines: list[Line], record: wire.Hang) -> None:
    """All ranks have the dump of `record`, except one that has not called the collective."""
    now_s = 0.0
    collected = HangRound("r", 1, range(RANKS), clock=lambda: now_s)
    [dump] = record.dumps
    group = wire.ProcessGroup(name="0", description="default_pg", members=tuple(range(RANKS)))
    for rank in range(RANKS):
        is_late = rank == RANKS // 2
        made = late_dump(
            rank,
            threads=dump.threads,
            reached=(wire.Reached(group=0, enqueued=7 - is_late, completed=6),),
            collectives=(wire.Collective(group=0, seq=7 - is_late, op="all_reduce", done=is_late),),
        )
        collected.take(
            wire.Hang(run="r", attempt=1, dumps=(made,), stacks=record.stacks, groups=(group,))
        )
    now_s = 2.0
    body = collected.tick()
    assert body is not None
    line = wire.encode(wire.Record(1, 1.0, body))
    store = simulated.running(RANKS)

    def read() -> None:
        simulated.read(store, line)

    def judge() -> None:
        found = verdict(store.runs["r"], 2.0)
        assert found is not None
        assert found.ranks == (RANKS // 2,)

    took_s = [[_taken_s(act) for act in (read, judge, judge)] for _ in range(DUMPS)]
    read_s, first_s, again_s = map(statistics.median, zip(*took_s, strict=True))
    size = f"{len(line) / 1024:.0f} KiB"
    lines.append(Line(f"reading the dumps of {RANKS:,} ranks", f"{read_s * 1e3:.0f} ms, {size}"))
    lines.append(Line("their verdict", f"{first_s * 1e3:.0f} ms"))
    lines.append(Line("the same verdict for each further view", f"{again_s * 1e6:.0f} µs"))


def of_many_groups() -> Line:
    """Many more than a rank sends: rank 1 has not called the collective of the first group."""
    groups = tuple(
        wire.ProcessGroup(name=str(number), members=(0, 1)) for number in range(HOSTILE_GROUPS)
    )
    dumps = tuple(
        late_dump(
            rank,
            reached=(
                wire.Reached(group=0, enqueued=2 - rank, completed=1),
                *(wire.Reached(group=n, enqueued=1, completed=1) for n in range(1, HOSTILE_GROUPS)),
            ),
            collectives=(wire.Collective(group=0, seq=2 - rank, op="all_reduce", done=bool(rank)),),
        )
        for rank in range(2)
    )
    line = wire.encode(
        wire.Record(1, 1.0, wire.Hang(run="r", attempt=1, dumps=dumps, groups=groups))
    )

    def judge() -> None:
        store = simulated.running(2)
        simulated.read(store, line)
        found = verdict(store.runs["r"], 2.0)
        assert found is not None
        assert found.ranks == (1,)

    took_s = statistics.median(_taken_s(judge) for _ in range(DUMPS))
    tracemalloc.start()
    judge()
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return Line(
        f"reading 2 dumps with {HOSTILE_GROUPS:,} process groups, and their verdict",
        f"{took_s * 1e3:.0f} ms, at most {peak_bytes / 1e6:.1f} MB of memory",
    )


def detecting() -> Line:
    found = simulated.hung(RANKS, clocks_apart_s=CLOCKS_APART_S)
    named = "none" if found.verdict is None else f"{found.verdict.kind.value}, rank 777"
    is_right = found.verdict is not None and found.verdict.ranks == (777,)
    in_time = is_right and found.after_s <= VERDICT_WITHIN_S
    words = f"a hang of {RANKS:,} simulated ranks is explained after"
    value = f"{found.after_s:.0f} s ({named})"
    return Line(words, value, f"≤ {VERDICT_WITHIN_S:g} s", in_time)


def _taken_s(act: Callable[[], None]) -> float:
    began_s = time.thread_time()
    act()
    return time.thread_time() - began_s


if __name__ == "__main__":
    sys.exit(show(measured))
