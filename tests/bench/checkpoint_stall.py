"""How long a checkpoint blocks training: `python -m tests.bench.checkpoint_stall`.

The bundled job with 2 ranks on a local cluster, with a checkpoint at the end of each epoch:
alternating groups of five epochs without checkpoints, in the background, and synchronous, so that
the load of the machine affects all three equally. `--width` makes the checkpoint larger, `--epochs`
the measurement longer.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.table import Line, Table, load, say, show, spread
from tests.training.cluster import ROOT, started

SHARE_TARGET = 0.02
POLL_S = "2"
"""Ray Train's default: a report is accepted at the controller's next look."""


@dataclass(frozen=True, slots=True)
class Epoch:
    turn: str
    stall_s: float
    wall_s: float
    """With the stall."""


def epochs_of(text: str) -> list[Epoch]:
    """Without the first of each turn, which the turn before still disturbs."""
    terms = [line.split() for line in text.splitlines()]
    every = [Epoch(turn, float(stall), float(wall)) for turn, stall, wall in terms]
    turns = [list(epochs) for _, epochs in groupby(every, key=lambda epoch: epoch.turn)]
    return [epoch for epochs in turns for epoch in epochs[1:]]


def measure(epochs: int, width: int, batch_size: int) -> Table:
    began = load()
    with started() as cluster, TemporaryDirectory() as directory:
        say(f"training for {epochs} epochs …")
        argv = [sys.executable, "-m", "tests.bench.stalled", directory]
        subprocess.run(
            [*argv, str(epochs), str(width), str(batch_size)],
            check=True,
            cwd=ROOT,
            env=cluster.environment | {"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": POLL_S},
            stdout=(cluster.directory / "driver.log").open("w"),
            stderr=subprocess.STDOUT,
        )
        recorded = epochs_of((Path(directory) / "epochs.txt").read_text())
        newest = max(Path(directory).glob("results/bench/checkpoint_*/model.pt")).parent
        size_bytes = sum(file.stat().st_size for file in newest.iterdir())
    by_turn = {
        turn: [epoch for epoch in recorded if epoch.turn == turn]
        for turn in ("none", "async", "sync")
    }
    none_s = statistics.median(epoch.wall_s for epoch in by_turn["none"])
    return Table(
        "What a checkpoint costs training",
        f"The bundled job, 2 ranks, {size_bytes / 1e6:.1f} MB each {none_s:.2f} s (an epoch), "
        f"{len(recorded)} epochs, in turns; medians (quartiles). Ray Train's "
        f"controller looks every {POLL_S} s. The stall is the time in which the loop waits, and "
        "the promise is held to the sum of it over the sum of the time.",
        [*lines("async", by_turn, SHARE_TARGET), *lines("sync", by_turn, None)],
        began,
    )


def lines(turn: str, by_turn: dict[str, list[Epoch]], target: float | None) -> Sequence[Line]:
    name = {"async": "in the background", "sync": "waited for"}[turn]
    epochs, none = by_turn[turn], by_turn["none"]
    share = sum(epoch.stall_s for epoch in epochs) / sum(epoch.wall_s for epoch in epochs)
    walls = [epoch.wall_s / statistics.median(e.wall_s for e in none) for epoch in epochs]
    return [
        Line(f"{name}: stall", spread([epoch.stall_s * 1e3 for epoch in epochs], "ms", 1)),
        Line(
            f"{name}: share of training time",
            f"{share:.2%}",
            "" if target is None else f"≤ {target:.0%}",
            None if target is None else share <= target,
        ),
        Line(f"{name}: an epoch by the clock ÷ one without", spread(walls)),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=16)
    given = parser.parse_args()
    return show(lambda: measure(given.epochs, given.width, given.batch_size))


if __name__ == "__main__":
    sys.exit(main())
