"""Compare Ray Data with torch's DataLoader: `python -m tests.bench.ray_data_against_loader`.

The bundled loop on 2 ranks of this machine trains on pictures that are read, decoded and cropped,
alternating between the two loaders within one run, so that the load of the machine affects both
equally. Both have one loading process per rank.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from tests.bench.streamed import LOADERS, TURN_EPOCHS
from tests.bench.table import Line, Table, load, say, show, spread
from tests.training.cluster import ROOT, started

RATIO_TARGET = 0.95
TRAIN, HELD_OUT = 800, 32
SIDE = 160
CLASSES = 4


def measure(turns: int) -> Table:
    began = load()
    with started() as cluster, TemporaryDirectory() as name:
        directory = Path(name)
        make_pictures(directory / "pictures")
        say(f"training for {turns} turns …")
        done = subprocess.run(
            [sys.executable, "-m", "tests.bench.streamed", name, str(turns)],
            cwd=ROOT,
            env=cluster.environment,
            stdout=(cluster.directory / "driver.log").open("w"),
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode:
            raise SystemExit((cluster.directory / "driver.log").read_text()[-4000:])
        recorded = (directory / "turns.txt").read_text().splitlines()
    say("\n".join(recorded))
    return Table(
        "Ray Data against the DataLoader",
        f"The bundled loop, 2 ranks with a loading process each, {TRAIN:,} JPEGs of {SIDE}×{SIDE} "
        f"cut to 64×64 and mirrored, batches of 16, {len(recorded)} turns of {TURN_EPOCHS} epochs "
        "one by one, the start of each turn included; medians (quartiles). The first pair of "
        "turns, in which every process imports what it needs, is left out.",
        lines([line.split("\t") for line in recorded][2:]),
        began,
    )


def lines(turns: list[list[str]]) -> Sequence[Line]:
    rates = {
        loader: [int(examples) / float(s) for name, examples, s in turns if name == loader]
        for loader in LOADERS
    }
    ratios = [streamed / loaded for loaded, streamed in zip(*rates.values(), strict=True)]
    ratio = sum(rates["Ray Data"]) / sum(rates["DataLoader"])
    return [
        *(Line(f"{name}: examples/s", spread(rates[name], digits=0)) for name in LOADERS),
        Line("Ray Data ÷ DataLoader, a pair of turns", spread(ratios)),
        Line(
            "Ray Data ÷ DataLoader, all turns",
            f"{ratio:.3f}",
            f"≥ {RATIO_TARGET}",
            ratio >= RATIO_TARGET,
        ),
    ]


def make_pictures(folder: Path) -> None:
    """Smooth noise: as hard to decode as a photograph of that size."""
    random = np.random.default_rng(0)
    for part, count in (("train", TRAIN), ("val", HELD_OUT)):
        for number in range(count):
            to = folder / part / f"class{number % CLASSES}"
            to.mkdir(parents=True, exist_ok=True)
            small = random.integers(0, 256, (SIDE // 4, SIDE // 4, 3), dtype=np.uint8)
            picture = Image.fromarray(small).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
            picture.save(to / f"{number}.JPEG", quality=90)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=8, help="of both: even, from 6 on")
    return show(lambda: measure(parser.parse_args().turns))


if __name__ == "__main__":
    sys.exit(main())
