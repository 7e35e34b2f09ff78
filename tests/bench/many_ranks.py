"""Cockpit on a run of 1,000 ranks at 1 Hz: `python -m tests.bench.many_ranks [RANKS]`.

A real Ray head with the real aggregator, which one process feeds in place of the ranks; the real
`cockpit` on a pseudo-terminal.
"""

from __future__ import annotations

import random
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from cockpit.backends.local import LocalBackend
from cockpit.model.event import Event, RankSampled
from cockpit.session import builder
from cockpit.session.session import Session
from tests.bench import simulated_ranks
from tests.bench.cluster import head_alone
from tests.bench.many_pods import resident_mb
from tests.bench.process import COCKPIT, cpu_of
from tests.bench.run import START_TIMEOUT_S, submit
from tests.bench.table import Line, Table, load, percentile, say, show
from tests.bench.terminal import Terminal

PROMISED = 1_000
SETTLE_S = 10.0
WATCH_S = 60.0
STALL_S = 60.0
KEYS = 100
NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+|\d+")
SCREEN = [COCKPIT, "--local"]


@dataclass(slots=True)
class Played:
    """The run, in a session of this process."""

    session: Session
    late_s: list[float] = field(default_factory=list)
    """By tick: how long after the aggregator wrote it, it was there."""

    @property
    def step(self) -> int:
        self.session.drain()
        return self.session.store.runs[simulated_ranks.RUN].step or 0


def measure(ranks: int = PROMISED) -> Table:
    began = load()
    with (
        head_alone() as backend,
        TemporaryDirectory() as directory,
        playing(backend, Path(directory), ranks) as run,
    ):
        promised = ranks == PROMISED
        lines = [*watched(run, promised), *keys(promised), *stalled(run, promised)]
    return Table(
        f"{ranks:,} ranks",
        f"A real Ray head and aggregator, to which one process sends the data of {ranks:,} ranks "
        "at 1 Hz; `cockpit` on a pseudo-terminal of 200×50 in the Ranks view.",
        lines,
        began,
    )


@contextmanager
def playing(backend: LocalBackend, directory: Path, ranks: int) -> Iterator[Played]:
    shutil.copy(Path(simulated_ranks.__file__), directory)
    say(f"a run of {ranks:,} ranks …")
    late_s: list[float] = []

    def heard(event: Event) -> None:
        if isinstance(event, RankSampled):
            late_s.append(time.time() - event.at_s)

    with builder.session_on(backend, listeners=[heard]) as session:
        job = session.call(submit(backend, ("python", "simulated_ranks.py", str(ranks)), directory))
        if not session.wait(
            lambda store: any(run.samples_seen for run in store.runs.values()), START_TIMEOUT_S
        ):
            raise TimeoutError(f"{job} told nothing: {session.store.jobs.get(job)}")
        yield Played(session, late_s)


def watched(run: Played, promised: bool) -> list[Line]:
    with Terminal(SCREEN) as terminal:
        terminal.wait_for("1 Overview")
        terminal.type("2")
        terminal.wait_for(simulated_ranks.NAME)
        terminal.bytes_in(SETTLE_S)
        say(f"watching for {WATCH_S:g} s …")
        begun, cpu, first = time.monotonic(), cpu_of(terminal.pid), len(run.late_s)
        received = terminal.bytes_in(WATCH_S)
        seconds = time.monotonic() - begun
        percent = 100 * (cpu_of(terminal.pid) - cpu) / seconds
        rate, mebibytes = received / seconds / 1e3, resident_mb(terminal.pid)
        late = run.late_s[first:]
    most = max(late)
    return [
        promise("CPU of one core", percent, "%", 20, promised, 1),
        promise("to the terminal", rate, "KB/s", 20, promised, 1),
        promise("resident memory", mebibytes, "MB", 200, promised),
        promise("a tick, from its writing to a session: maximum", most, "s", 1, promised, 2),
        Line("the same, median", f"{median(late):.2f} s"),
    ]


def keys(promised: bool) -> list[Line]:
    gap = random.Random(7)
    with Terminal(SCREEN) as terminal:
        terminal.wait_for("1 Overview")
        terminal.type("2")
        terminal.wait_for(simulated_ranks.NAME)
        terminal.bytes_in(SETTLE_S)
        say(f"{KEYS} keys …")
        took = []
        for _ in range(KEYS):
            terminal.bytes_in(gap.uniform(0.05, 0.2))
            took.append(1e3 * terminal.answer_s("j"))
    return [
        Line("key to paint, median", f"{median(took):.1f} ms"),
        promise("key to paint, 99 %", percentile(took, 99), "ms", 50, promised, 1),
    ]


def stalled(run: Played, promised: bool) -> list[Line]:
    """The terminal reads nothing for a minute; then, how long until the newest step is there."""
    with Terminal(SCREEN) as terminal:
        terminal.wait_for("1 Overview")
        terminal.wait_for(simulated_ranks.NAME)
        terminal.bytes_in(SETTLE_S)
        say(f"a terminal that does not read for {STALL_S:g} s …")
        time.sleep(STALL_S)
        newest, resumed = run.step, time.time()
        seen = next(
            (
                now
                for now, text in terminal.texts(30.0)
                if any(_is_step(label, newest) for label in NUMBER.findall(text))
            ),
            None,
        )
    if seen is None:
        return [Line("a step that is up to date after a minute unread", "never", "≤ 1 s", False)]
    return [
        promise(
            f"after {STALL_S:g} s unread: until the newest step is shown",
            seen - resumed,
            "s",
            1,
            promised,
            2,
        )
    ]


def _is_step(text: str, newest: int) -> bool:
    return newest <= int(text.replace(",", "")) <= newest + 60 * simulated_ranks.STEPS_PER_S


def promise(
    what: str, value: float, unit: str, most: float, promised: bool, digits: int = 0
) -> Line:
    text = f"{value:.{digits}f} {unit}"
    if not promised:
        return Line(what, text)
    return Line(what, text, f"≤ {most:g} {unit}", value <= most)


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else PROMISED
    sys.exit(show(lambda: measure(count)))
