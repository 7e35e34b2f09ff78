"""Randomly mutated lines of a telemetry stream.

    python -m tests.sources.mutated --lines 1000000 --seed 1

passes them through the reader into a store and prints the results.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections import Counter
from collections.abc import Iterator

from cockpit.sources.telemetry.events import event_of
from cockpit.sources.telemetry.records import Progress, RereadError
from cockpit.store.store import Store
from training.telemetry import wire

RUNS = ("ab12", "cd34")
ODD: tuple[object, ...] = (
    None,
    True,
    -1,
    0,
    2**63,
    10**400,
    1e308,
    -0.0,
    "nan",
    "inf",
    "-inf",
    "",
    "x" * 5000,
    "\x1b[2J\x00\x07",
    "\ud800",
    "０１２",
    [],
    {},
    [[]],
    {"rank": {}},
    [None],
    ["a", 1],
)


def bodies(chance: random.Random) -> Iterator[wire.Body]:
    """A run's stream, healthy, without an end."""
    step = attempt = 0
    while True:
        run = chance.choice(RUNS)
        kind = chance.randrange(20)
        rank = chance.randrange(4)
        if kind == 0:
            state = chance.choice(("RUNNING", "FINISHED", "RESTARTING", "NEW_IN_RAY_3"))
            yield wire.Run(run=run, name="digits", state=state, world_size=4)
        elif kind == 1:
            attempt += 1
            workers = tuple(wire.Worker(rank=r) for r in range(chance.randrange(1, 5)))
            yield wire.AttemptStart(run=run, attempt=attempt, workers=workers)
        elif kind == 2:
            yield wire.AttemptEnd(run=run, attempt=attempt, reason="died")
        elif kind == 3:
            phase = chance.choice(("running", "restore", "dreaming"))
            yield wire.Phase(run=run, attempt=attempt, phase=phase)
        elif kind == 4:
            metrics = {"loss": chance.random(), "step": float(step)}
            yield wire.Report(
                run=run,
                attempt=attempt,
                metrics=metrics,
                checkpoint="/c",
                checkpoint_bytes=chance.randrange(1 << 40),
                by_rank=(wire.RankMetrics(rank=rank, metrics=metrics),),
            )
        elif kind == 5:
            trial = wire.Trial(id=f"t{rank}", config={"lr": "0.1"}, metrics={"loss": 1.0})
            yield wire.Trials(experiment="e", trials=(trial,))
        elif kind == 6:
            yield wire.Segment(segment=step)
        else:
            step += 1
            row = wire.Steps(
                rank=rank,
                attempt=attempt,
                t=1000.0 + step + chance.uniform(-100, 100),
                step=step,
                first_step=step,
                steps_total=step,
                loss=chance.choice((1.0, math.nan, math.inf)),
                gpu_throttle="thermal",
            )
            spread = wire.Spread(
                name="loss",
                count=4,
                mean=1.0,
                low=0.0,
                p10=0.1,
                p50=0.5,
                p90=0.9,
                high=1.0,
                low_rank=0,
                high_rank=3,
            )
            large = chance.random() < 0.3
            yield wire.Tick(
                run=run,
                ranks=(row,) * chance.randrange(3),
                spreads=(spread,) if large else (),
                attempt=attempt,
                silent=(rank,) if large else (),
            )


def lines(chance: random.Random) -> Iterator[bytes]:
    """Healthy and broken ones, out of order, twice, by clocks that disagree."""
    held: list[bytes] = []
    for seq, body in enumerate(bodies(chance), 1):
        t = 1000.0 + seq + (chance.uniform(-1e6, 1e6) if chance.random() < 0.01 else 0.0)
        line = wire.encode(wire.Record(seq, t, body)).encode()
        fate = chance.random()
        if fate < 0.3:
            yield line
        elif fate < 0.35:
            held.append(line)  # received later
        elif fate < 0.38:
            yield line
            yield line
        elif fate < 0.4:
            yield from _drawn(held, chance)
        else:
            yield _broken(line, chance)


def _drawn(held: list[bytes], chance: random.Random) -> Iterator[bytes]:
    chance.shuffle(held)
    while held:
        yield held.pop()


def _broken(line: bytes, chance: random.Random) -> bytes:
    way = chance.randrange(9)
    if way == 0:
        return line[: chance.randrange(len(line))]
    if way == 1:
        return bytes(chance.randrange(256) for _ in range(chance.randrange(200)))
    if way == 2:
        return line + line
    if way == 3:
        broken = bytearray(line)
        for _ in range(chance.randrange(1, 5)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        return bytes(broken)
    if way == 4 and chance.random() < 0.01:
        return chance.choice(
            (b"[" * 50_000, b'{"a":' * 20_000, b'"' + b"x" * 1_000_000, b"9" * 5000)
        )
    raw = json.loads(line)
    if way == 5:
        raw["v"] = chance.choice((2, 99, -1, "1", None, 1.0, True))
    elif way == 6:
        raw["kind"] = chance.choice(("hologram", None, 7, [], "steps", "report", "trials"))
    elif way == 7:
        raw.pop(chance.choice(list(raw)))
    else:
        _spoil(raw, chance)
    return json.dumps(raw).encode()


def _spoil(raw: dict[str, object], chance: random.Random) -> None:
    """Another value somewhere, at any depth."""
    inside: dict[str, object] = raw
    while True:
        name = chance.choice(list(inside))
        value = inside[name]
        deeper = value[0] if isinstance(value, list) and value else value
        if isinstance(deeper, dict) and deeper and chance.random() < 0.8:
            inside = deeper
            continue
        inside[name] = chance.choice(ODD)
        return


def feed(count: int, seed: int) -> Counter[str]:
    """The counts of `count` lines: accepted, skipped, dropped, reread."""
    chance = random.Random(seed)
    progress, store = Progress(), Store()
    became: Counter[str] = Counter()
    progress.begin(whole=True)
    for _, line in zip(range(count), lines(chance), strict=False):
        skipped = progress.skipped
        try:
            record = progress.take(line)
        except RereadError:
            became["reread"] += 1
            progress.begin(whole=True)
            continue
        if record is None:
            became["skipped" if progress.skipped > skipped else "dropped"] += 1
            continue
        became["taken"] += 1
        if (event := event_of(record)) is not None:
            store.apply(event)
    return became


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    began = time.perf_counter()
    became = feed(args.lines, args.seed)
    took_s = time.perf_counter() - began
    print(f"{args.lines} lines, seed {args.seed}: {dict(became)}; {took_s:.0f} s")


if __name__ == "__main__":
    main()
