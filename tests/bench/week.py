"""The UI after a week of 1,000 ranks: `python -m tests.bench.week`.

A week of events is applied to the store as fast as possible, a tick every TICK_S simulated seconds
(all buffers are bounded by their number of points and are full long before); then the run continues
at 1 Hz, with the Ranks view on a pseudo-terminal.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from tempfile import TemporaryDirectory

from cockpit.model.cluster import ClusterHealth
from cockpit.model.event import (
    AttemptEnded,
    AttemptStarted,
    ClusterSeen,
    Event,
    LogLines,
    MetricsReported,
    Notice,
    PhaseEntered,
    RunSeen,
    SourceHealth,
)
from cockpit.model.run import Checkpoint, Phase, Placement, RankMetrics, RunState
from cockpit.session.session import Session
from cockpit.sources.telemetry.events import event_of
from tests.bench import simulated_ranks
from tests.bench.many_pods import resident_mb
from tests.bench.many_ranks import promise
from tests.bench.process import cpu_of
from tests.bench.table import Line, Table, load, say, show
from tests.bench.terminal import Terminal
from tests.simulated_backend import ScriptedBackend
from tests.tui.simulated import REF
from training.telemetry import wire

RANKS = 1_000
WEEK_S = 7 * 86_400
TICK_S = 30
DETAIL = 64
"""Ranks with full detail in one tick."""
ATTEMPT_S, CHECKPOINT_S = 6 * 3_600, 600
SPREADS = ("loss", "samples_per_s", "step_time_s", "gpu_utilization_percent", "memory_bytes")


def events(begin_s: float) -> Iterator[Event]:
    """Of the complete week, in order."""
    yield ClusterSeen(at_s=begin_s, source="backend", ref=REF, health=ClusterHealth.READY)
    yield _run(begin_s, RunState.SCHEDULING)
    attempt = 0
    for second in range(0, WEEK_S, TICK_S):
        at_s = begin_s + second
        if second % ATTEMPT_S < TICK_S:
            if attempt:
                yield AttemptEnded(
                    at_s=at_s,
                    source="telemetry",
                    run_id=simulated_ranks.RUN,
                    attempt=attempt,
                    reason="rank 7 died with its node",
                )
            attempt += 1
            yield from _attempt(at_s, attempt)
        yield tick(at_s, second, attempt)
        if second % CHECKPOINT_S < TICK_S:
            yield _report(at_s, second, attempt)
        lines = tuple(f"step {second + n} loss 0.123 on every one of them" for n in range(5))
        yield LogLines(at_s=at_s, source="logs", stream="job:week", lines=lines)


def tick(at_s: float, second: int, attempt: int) -> Event:
    ranks = [(second // TICK_S * DETAIL + n) % RANKS for n in range(DETAIL)]
    body = wire.Tick(
        run=simulated_ranks.RUN,
        ranks=tuple(simulated_ranks.record(rank, second, at_s, attempt) for rank in ranks),
        spreads=tuple(
            wire.Spread(
                name=name,
                count=RANKS,
                mean=2.0,
                low=1.0,
                p10=1.5,
                p50=2.0,
                p90=2.5,
                high=3.0,
                low_rank=3,
                high_rank=simulated_ranks.STRAGGLER,
            )
            for name in SPREADS
        ),
        attempt=attempt,
        reporting=RANKS,
    )
    event = event_of(wire.Record(second + 1, at_s, body))
    assert event is not None
    return event


def _run(at_s: float, state: RunState) -> RunSeen:
    return RunSeen(
        at_s=at_s,
        source="telemetry",
        run_id=simulated_ranks.RUN,
        name=simulated_ranks.NAME,
        state=state,
        world_size=RANKS,
    )


def _attempt(at_s: float, number: int) -> Iterator[Event]:
    placed = tuple(Placement(n, f"n{n // 8}", f"10.0.0.{n // 8}", n) for n in range(RANKS))
    yield PhaseEntered(
        at_s=at_s,
        source="telemetry",
        run_id=simulated_ranks.RUN,
        attempt=number,
        phase=Phase.SCHEDULING,
    )
    yield AttemptStarted(
        at_s=at_s + 1,
        source="telemetry",
        run_id=simulated_ranks.RUN,
        attempt=number,
        placements=placed,
    )
    yield PhaseEntered(
        at_s=at_s + 2,
        source="telemetry",
        run_id=simulated_ranks.RUN,
        attempt=number,
        phase=Phase.RUNNING,
    )
    yield _run(at_s + 2, RunState.RUNNING)
    yield Notice(
        at_s=at_s, source="backend", kind="Pod", name=f"pod-{number}", reason="Killed", message="x"
    )


def _report(at_s: float, second: int, attempt: int) -> MetricsReported:
    numbers = {"loss": 0.5, "accuracy": 0.9, "step": float(second * simulated_ranks.STEPS_PER_S)}
    return MetricsReported(
        at_s=at_s,
        source="telemetry",
        run_id=simulated_ranks.RUN,
        attempt=attempt,
        metrics=numbers,
        checkpoint=Checkpoint(second, f"/mnt/shared/checkpoint_{second:09d}", numbers, 10**9, 2.5),
        ranks=tuple(RankMetrics(rank, numbers) for rank in range(16)),
    )


def screen() -> None:
    """The screen alone, until it is ended."""
    from cockpit.tui.app import CockpitApp
    from cockpit.tui.changes.actions import Connection

    began_s = time.time() - WEEK_S
    session = Session(ScriptedBackend(ref=REF))
    for event in events(began_s):
        session.store.apply(event)

    def go_on() -> None:
        second = WEEK_S
        attempt = max(session.store.runs[simulated_ranks.RUN].attempts)
        while True:
            time.sleep(max(0.0, began_s + second - time.time()))
            now = session.clock()
            session.dispatch(tick(now, second, attempt))
            session.dispatch(SourceHealth(at_s=now, source="telemetry", ok=True))
            second += 1

    with session:
        threading.Thread(target=go_on, daemon=True).start()
        CockpitApp(lambda log: Connection(session)).run()


def measure() -> Table:
    began = load()
    with TemporaryDirectory() as empty:
        environment = {"XDG_STATE_HOME": empty, "XDG_CONFIG_HOME": empty}
        argv = [sys.executable, "-m", "tests.bench.week", "screen"]
        with Terminal(argv, environment) as terminal:
            say("a week goes through the store …")
            terminal.wait_for("1 Overview", 600.0)
            terminal.wait_for(simulated_ranks.NAME)
            overview = resident_mb(terminal.pid)
            terminal.type("2")
            terminal.bytes_in(30.0)
            cpu, begun = cpu_of(terminal.pid), time.monotonic()
            sent = terminal.bytes_in(30.0)
            seconds = time.monotonic() - begun
            percent = 100 * (cpu_of(terminal.pid) - cpu) / seconds
            ranks = resident_mb(terminal.pid)
            terminal.type("3")
            terminal.bytes_in(30.0)
            charts = resident_mb(terminal.pid)
    most = max(overview, ranks, charts)
    return Table(
        f"A week of {RANKS:,} ranks",
        f"A week of telemetry, read at once: a line every {TICK_S} s ({DETAIL} ranks in full, "
        f"statistics over all), an attempt every {ATTEMPT_S // 3600} h, a checkpoint every "
        f"{CHECKPOINT_S // 60} min, and a log. Then a line every second, on a pseudo-terminal of "
        "200×50.",
        [
            promise("resident memory, maximum of three views", most, "MB", 200, True),
            Line(
                "the same, by view: Overview, Ranks, Charts",
                f"{overview:.0f}, {ranks:.0f}, {charts:.0f} MB",
            ),
            Line("CPU of one core, in the Ranks view", f"{percent:.1f} %"),
            Line("to the terminal, in the Ranks view", f"{sent / seconds / 1e3:.1f} KB/s"),
        ],
        began,
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["screen"]:
        os.environ.setdefault("TERM", "xterm-256color")
        screen()
    else:
        sys.exit(show(measure))
