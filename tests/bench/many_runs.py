"""The cost of many runs for the session that watches them: `python -m tests.bench.many_runs`.

400 runs that ended before, read from the telemetry streams at once; then a sweep of 2,000 trials,
each a run of one rank, eight of them at a time. The events are dispatched into a session with its
recorder and its alerts; the sweep's clock is simulated, so that it takes only as long as the work.
"""

from __future__ import annotations

import multiprocessing
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from cockpit.model.event import (
    AttemptEnded,
    AttemptStarted,
    Event,
    JobsListed,
    MetricsReported,
    RankSampled,
    RunSeen,
    SourceHealth,
    TrialsListed,
)
from cockpit.model.run import Job, JobStatus, Placement, RunState, Trial, TrialStatus
from cockpit.recorder.reading.library import Library
from cockpit.recorder.writing import recorder_thread
from cockpit.recorder.writing.run_recorders import RunRecorders
from cockpit.session.monitored import MonitoredSession
from tests.bench.recorder_cost import START_S, Turned, sample
from tests.bench.table import Line, Table, load, say, show
from tests.simulated_backend import ScriptedBackend

T = TypeVar("T")

RUNS, TRIALS, AT_A_TIME, TRIAL_S = 400, 2_000, 8, 20
SECOND_S = 0.02
"""A second of the sweep takes at least so long, so that the recorder has its turns."""
TURN_S = 0.05
"""The recorder writes this often, since the sweep runs faster than the clock."""


@dataclass(frozen=True, slots=True)
class Usage:
    threads: int
    descriptors: int
    memory_bytes: int

    @classmethod
    def now(cls) -> Usage:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return cls(
            threading.active_count(), len(list(Path("/proc/self/fd").iterdir())), pages * 4_096
        )

    def most(self, other: Usage) -> Usage:
        return Usage(
            max(self.threads, other.threads),
            max(self.descriptors, other.descriptors),
            max(self.memory_bytes, other.memory_bytes),
        )


def run_events(run_id: str, at_s: float, seconds: int, chance: random.Random) -> list[list[Event]]:
    """By second: what a run of one rank reports."""
    run = RunSeen(
        at_s=at_s,
        source="telemetry",
        run_id=run_id,
        name=run_id,
        state=RunState.RUNNING,
        world_size=1,
    )
    placed = (Placement(0, "node-1", "10.0.0.1", 1, (0,)),)
    start = AttemptStarted(
        at_s=at_s, source="telemetry", run_id=run_id, attempt=1, placements=placed
    )
    made: list[list[Event]] = [[run, start]]
    for second in range(1, seconds):
        now_s = at_s + second
        ranks = (sample(0, now_s, second, chance),)
        made.append([RankSampled(at_s=now_s, source="telemetry", run_id=run_id, samples=ranks)])
        if second % 5 == 0:
            made[-1].append(
                MetricsReported(
                    at_s=now_s,
                    source="telemetry",
                    run_id=run_id,
                    attempt=1,
                    metrics={"loss": chance.random(), "accuracy": chance.random()},
                )
            )
    end_s = at_s + seconds
    made.append(
        [
            AttemptEnded(
                at_s=end_s, source="telemetry", run_id=run_id, attempt=1, reason="finished"
            ),
            replace(run, at_s=end_s, state=RunState.FINISHED),
        ]
    )
    return made


def sweep(begin_s: float) -> Iterator[tuple[int, float, list[Event]]]:
    """By second: the number of ended trials, the time, and the events."""
    chance, number, ended = random.Random(1), 0, 0
    going: dict[str, list[list[Event]]] = {}
    job = Job("tune-1", "python tune.py", JobStatus.RUNNING, started_s=begin_s)
    at_s = begin_s
    while ended < TRIALS:
        at_s += 1
        now: list[Event] = [
            SourceHealth(at_s=at_s, source=name, ok=True)
            for name in ("backend", "ray", "telemetry", "prometheus")
        ]
        now.append(JobsListed(at_s=at_s, source="ray", jobs=(job,)))
        while len(going) < AT_A_TIME and number < TRIALS:
            # They do not begin in the same second.
            seconds = TRIAL_S + chance.randrange(10)
            going[f"trial-{number:05d}"] = run_events(f"trial-{number:05d}", at_s, seconds, chance)
            number += 1
        changed = []
        for run_id, left in list(going.items()):
            now += left.pop(0)
            changed.append(
                Trial(
                    run_id,
                    "sweep",
                    TrialStatus.RUNNING if left else TrialStatus.TERMINATED,
                    config={f"parameter-{n}": str(chance.random()) for n in range(6)},
                    metrics={f"metric-{n}": chance.random() for n in range(6)},
                    iteration=100 - len(left),
                    updated_s=at_s,
                    run_id=run_id,
                )
            )
            if not left:
                del going[run_id]
                ended += 1
        listed = TrialsListed(
            at_s=at_s,
            source="telemetry",
            experiment="sweep",
            trials=tuple(changed),
            metric="metric-0",
            mode="min",
        )
        yield ended, at_s, [*now, listed]


def session_in(directory: Path, clock: Turned) -> MonitoredSession:
    library = Library(directory)
    return MonitoredSession(
        ScriptedBackend(),
        recording=RunRecorders(library, clock=clock, monotonic=clock),
        clock=clock,
        past=library.summaries,
    )


def finished_runs(directory: Path) -> tuple[Usage, Usage, int]:
    """Before, the most that it took, and how many files it wrote."""
    clock, chance = Turned(START_S + 100_000), random.Random(1)
    with session_in(directory, clock) as session:
        before = most = Usage.now()
        for number in range(RUNS):
            for events in run_events(f"run-{number}", START_S + 100 * number, TRIAL_S, chance):
                for event in events:
                    session.dispatch(event)
            session.drain()
            most = most.most(Usage.now())
        session.dispatch(SourceHealth(at_s=clock.now_s, source="telemetry", ok=True))
        for _ in range(20):
            session.drain()
            time.sleep(0.1)
            most = most.most(Usage.now())
        return before, most, len(list(Library(directory).directory.glob("*.cockpit")))


def trials(directory: Path) -> tuple[list[tuple[int, Usage]], float]:
    """The most that it took up to each tenth of the trials; seconds of processor time."""
    recorder_thread.COMMIT_EVERY_S = TURN_S
    clock = Turned(START_S)
    found: list[tuple[int, Usage]] = []
    began_s = time.process_time()
    with session_in(directory, clock) as session:
        most = Usage.now()
        for ended, at_s, events in sweep(START_S):
            clock.now_s, next_s = at_s, time.monotonic() + SECOND_S
            for event in events:
                session.dispatch(event)
            session.drain()
            most = most.most(Usage.now())
            if ended >= (len(found) + 1) * TRIALS // 10:
                found.append((ended, most))
                most = Usage.now()
            time.sleep(max(0.0, next_s - time.monotonic()))
    return found, time.process_time() - began_s


DESCRIPTORS = 100
"""16 open recordings of 4 each, and what the reader of past runs has open."""
THREADS = 8
TRIAL_BYTES = 15_000
"""The row of a trial and its curve, which the Tune view shows, and the row of its recording."""


def measure() -> Table:
    began = load()
    say("400 finished runs …")
    before, most, files = _alone(finished_runs)
    say("2,000 trials …")
    tenths, cpu_s = _alone(trials)
    middle, last = tenths[len(tenths) // 2 - 1][1], tenths[-1][1]
    grown = (last.memory_bytes - middle.memory_bytes) / (TRIALS / 2)
    whole = last
    for _, of in tenths:
        whole = whole.most(of)
    memory = " → ".join(f"{of.memory_bytes / 1e6:.0f}" for _, of in tenths[1::2])
    lines = [
        Line(
            f"{RUNS} finished runs: threads",
            f"{before.threads} → {most.threads}",
            f"≤ {THREADS}",
            most.threads <= THREADS,
        ),
        Line(
            "descriptors",
            f"{before.descriptors} → {most.descriptors}",
            f"≤ {DESCRIPTORS} more",
            most.descriptors - before.descriptors <= DESCRIPTORS,
        ),
        Line(
            "resident memory",
            f"{before.memory_bytes / 1e6:.0f} → {most.memory_bytes / 1e6:.0f} MB",
        ),
        Line("recordings written", f"{files}", "0", files == 0),
        Line(
            f"{TRIALS:,} trials: threads, at most",
            f"{whole.threads}",
            f"≤ {THREADS}",
            whole.threads <= THREADS,
        ),
        Line(
            "descriptors, at most",
            f"{whole.descriptors}",
            f"≤ {before.descriptors + DESCRIPTORS}",
            whole.descriptors <= before.descriptors + DESCRIPTORS,
        ),
        Line("resident memory after each 400 trials", f"{memory} MB"),
        Line(
            "its growth a trial, over the second half",
            f"{grown / 1e3:.1f} KB",
            f"≤ {TRIAL_BYTES / 1e3:.0f} KB",
            grown <= TRIAL_BYTES,
        ),
        Line("processor time a trial", f"{cpu_s / TRIALS * 1e3:.1f} ms"),
    ]
    return Table(
        "Many runs",
        f"In one process, cockpit reads {RUNS} runs that ended before it was started. In another, "
        f"it follows a search of {TRIALS:,} trials with its recorder and its alerts; a trial is a "
        f"run of one rank for {TRIAL_S} to {TRIAL_S + 10} s, and {AT_A_TIME} run at a time.",
        lines,
        began,
    )


def _alone(work: Callable[[Path], T]) -> T:
    """In a separate process, so that its memory is measured alone."""
    with tempfile.TemporaryDirectory() as directory:
        context = multiprocessing.get_context("spawn")
        with context.Pool(1) as pool:
            return pool.apply(work, (Path(directory),))


if __name__ == "__main__":
    sys.exit(show(measure))
