"""What `cockpit --help` costs over a bare interpreter: `python -m tests.bench.help_cost`."""

from __future__ import annotations

import sys

from tests.bench.process import COCKPIT, alternate
from tests.bench.table import Line, Table, load, show, spread

OVER_S = 0.10
PAIRS = 21


def measure() -> Table:
    began = load()
    bare, helped = alternate([sys.executable, "-c", "pass"], [COCKPIT, "--help"], PAIRS)
    over = [h.wall_s - b.wall_s for b, h in zip(bare, helped, strict=True)]
    passed = sorted(over)[PAIRS // 2] <= OVER_S
    return Table(
        "Help",
        f"{PAIRS} consecutive pairs, median (quartiles) of the wall time.",
        [
            Line("`python -c pass`", spread([took.wall_s for took in bare], "s")),
            Line("`cockpit --help`", spread([took.wall_s for took in helped], "s")),
            Line("difference, by pair", spread(over, "s"), f"≤ {OVER_S:.2f} s", passed),
        ],
        began,
    )


if __name__ == "__main__":
    sys.exit(show(measure))
