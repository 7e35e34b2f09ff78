"""From exec to the first paint, in a real pseudo-terminal: `python -m tests.bench.first_paint`."""

from __future__ import annotations

import sys
from statistics import median
from tempfile import TemporaryDirectory

from tests.bench.process import COCKPIT, run
from tests.bench.table import Line, Table, load, show, spread
from tests.bench.terminal import Terminal

PAINT_S = 0.5
PAIRS = 11
HEADER = "1 Overview"


def measure() -> Table:
    began = load()
    importing: list[float] = []
    painting: list[float] = []
    with TemporaryDirectory() as empty:
        env = {"XDG_STATE_HOME": empty, "XDG_CONFIG_HOME": empty}
        for _ in range(PAIRS):
            importing.append(run([sys.executable, "-c", "import textual.app"]).wall_s)
            with Terminal([COCKPIT], env) as terminal:
                painting.append(terminal.wait_for(HEADER) - terminal.began_s)
    over = [a - b for a, b in zip(painting, importing, strict=True)]
    return Table(
        "First paint",
        f"{PAIRS} consecutive pairs, median (quartiles): the time from the start of `cockpit` on a "
        f"pseudo-terminal of 200×50 until the terminal receives the header (“{HEADER}”).",
        [
            Line("`python -c 'import textual.app'`", spread(importing, "s")),
            Line(
                "`cockpit`, until the header",
                spread(painting, "s"),
                f"≤ {PAINT_S} s",
                median(painting) <= PAINT_S,
            ),
            Line("difference, by pair", spread(over, "s")),
        ],
        began,
    )


if __name__ == "__main__":
    sys.exit(show(measure))
