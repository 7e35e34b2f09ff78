"""From a step in a worker to its number on the screen: `python -m tests.bench.step_to_screen`.

A real cluster, the real job, and the real `cockpit` on a pseudo-terminal with the Ranks view. For
every step of both ranks: from its end in the worker to the first bytes for the terminal that hold
its number or a later one. Worker, head and screen are on one machine and share its clock.
"""

from __future__ import annotations

import bisect
import re
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from cockpit.model.event import Event, RankSampled
from cockpit.session.session import Session
from tests.bench import run
from tests.bench.cluster import two_workers
from tests.bench.process import COCKPIT
from tests.bench.table import Line, Table, load, percentile, say, show
from tests.bench.terminal import Terminal

LATENCY_S = 1.5
SETTLE_S = 5.0
WATCH_S = 60.0

Seen = list[tuple[float, int]]
"""(when, highest step shown until then), both going up."""


def measure() -> Table:
    began = load()
    shown: list[Seen] = [[], []]
    with (
        two_workers() as backend,
        TemporaryDirectory() as directory,
        run.training(backend, Path(directory)) as session,
    ):
        arrivals = Arrivals(session)
        with Terminal([COCKPIT, "--local"]) as terminal:
            terminal.wait_for("1 Overview")
            terminal.type("2")
            say(f"watching for {WATCH_S:g} s …")
            started = time.time() + SETTLE_S
            for now, text in terminal.texts(SETTLE_S + WATCH_S):
                for rank, first in enumerate(run.FIRST):
                    note_shown(shown[rank], now, text, first)
                session.drain()
                if now > started + WATCH_S:
                    break
            ended = time.time()
        arrivals.close()
        recorded = [run.notes(Path(directory), rank) for rank in (0, 1)]
    latencies = [
        late
        for rank in (0, 1)
        for late in delays(
            shown[rank],
            [(n.ended_s, n.step) for n in recorded[rank] if started < n.ended_s < ended - 5],
        )
    ]
    parts = arrivals.parts(shown, started, ended - 5)
    p95 = percentile(latencies, 95)
    return Table(
        "From a step to the screen",
        "The job `checkpointed` with 2 ranks, and `cockpit` on a pseudo-terminal of 200×50 with "
        f"the Ranks view, for {WATCH_S:g} s and {len(latencies):,} steps: the time from the end of "
        "a step in its worker until the terminal receives its number, or a later one of that rank. "
        "The last rows are the parts of this time: median, 95th percentile and maximum.",
        [
            Line("median", f"{percentile(latencies, 50):.2f} s"),
            Line("95 %", f"{p95:.2f} s", f"≤ {LATENCY_S} s", p95 <= LATENCY_S),
            Line("maximum", f"{max(latencies):.2f} s"),
            *(Line(what, quantiles(values)) for what, values in parts.items()),
        ],
        began,
    )


class Arrivals:
    """When each record was created, written and read, by a session beside the UI."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._dispatch = session.dispatch
        self._lock = threading.Lock()
        self._read: list[tuple[int, float, float, float, float, int]] = []
        vars(session)["dispatch"] = self._note

    def _note(self, event: Event) -> None:
        if isinstance(event, RankSampled):
            now = time.time()
            with self._lock:
                for sample in event.samples:
                    folded = (sample.step - sample.first_step) * (sample.step_time_s or 0.0)
                    at = (sample.at_s, event.at_s, now)
                    self._read.append((sample.rank, folded, *at, sample.step))
        self._dispatch(event)

    def close(self) -> None:
        del vars(self._session)["dispatch"]

    def parts(self, shown: list[Seen], after: float, before: float) -> dict[str, list[float]]:
        fold: list[float] = []
        push: list[float] = []
        stream: list[float] = []
        paint: list[float] = []
        with self._lock:
            for rank, folded, at_s, written_s, read_s, step in self._read:
                if not after < at_s < before:
                    continue
                fold.append(folded)
                push.append(written_s - at_s)
                stream.append(read_s - written_s)
                paint += delays(shown[rank], [(read_s, step)])
        return {
            "folding: from the first to the last step of a record": fold,
            "last step → push → aggregator → its file": push,
            "file → dashboard's log stream → a reader beside the screen": stream,
            "reader → store → painted (the screen's own stream may be earlier or later)": paint,
        }


def note_shown(seen: Seen, now: float, text: str, first: int) -> None:
    """Steps of one rank are identified by their first digits: 900,123."""
    pattern = rf"(?<![\d,]){first // 10_000}\d,\d{{3}}(?![\d,])"
    steps = [int(found.replace(",", "")) for found in re.findall(pattern, text)]
    if steps and (not seen or max(steps) > seen[-1][1]):
        seen.append((now, max(steps)))


def delays(seen: Seen, steps: list[tuple[float, int]]) -> list[float]:
    """For each (time, step): the time until it, or a later one, was shown.

    Steps that were never shown are only at the end, since steps only increase.
    """
    numbers = [step for _, step in seen]
    found = ((when, bisect.bisect_left(numbers, step)) for when, step in steps)
    return [seen[at][0] - when for when, at in found if at < len(seen)]


def quantiles(values: list[float]) -> str:
    shares = (percentile(values, percent) for percent in (50, 95, 100))
    return " / ".join(f"{value:.2f}" for value in shares) + " s"


if __name__ == "__main__":
    sys.exit(show(measure))
