"""The cost of the recorder, and the speed of a replay: `python -m tests.bench.recorder_cost`.

With numbers after it, of worlds of that many ranks. An hour of samples at 1 Hz, every field of them
set and every number noisy to its last digit, with the cluster around it; the clock is turned by
hand, so that an hour takes as long as it costs.
"""

from __future__ import annotations

import multiprocessing
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cockpit.model.cluster import ClusterHealth, ClusterRef, Gpu, Node, NodeType, Pod, PodPhase
from cockpit.model.event import (
    AttemptStarted,
    ClusterSeen,
    Event,
    MetricsReported,
    NodesListed,
    PodsListed,
    RankSampled,
    RunSeen,
    SourceHealth,
)
from cockpit.model.run import Checkpoint, Placement, RankSample, RunState, Spread
from cockpit.recorder.reading.player import Player
from cockpit.recorder.reading.recording import Recording
from cockpit.recorder.writing.event_filter import EventFilter
from cockpit.recorder.writing.writer import Writer
from tests.bench.table import Line, Table, load, say, show
from training.telemetry.metric_table import CURVES

START_S = 1_763_712_000.0
HOUR_S = 3_600
RUN = "5d0c1f0e9b7a4c1c8f7e3a2b1c0d9e8f"
FEW, TOLD = 64, 64
"""Above FEW ranks, each tick contains `TOLD` of them."""


@dataclass(slots=True)
class Turned:
    """A clock that is turned by hand."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def sample(rank: int, at_s: float, second: int, chance: random.Random) -> RankSample:
    noise = chance.gauss
    return RankSample(
        rank=rank,
        attempt=1,
        at_s=at_s - chance.random(),
        step=second * 20,
        first_step=second * 20 - 19,
        steps_total=second * 20,
        epoch=second / 50,
        loss=2.0 + noise(0, 0.05),
        samples_per_s=640 + noise(0, 9),
        step_time_s=0.05 + noise(0, 0.002),
        data_wait_s=0.002 + noise(0, 0.0002),
        comm_s=0.009 + noise(0, 0.001),
        checkpoint_s=0.0,
        forward_s=0.013 + noise(0, 0.0005),
        backward_s=0.024 + noise(0, 0.0005),
        optimizer_s=0.003 + noise(0, 0.0001),
        tokens_per_s=81_920 + noise(0, 500),
        mfu_percent=41 + noise(0, 1),
        learning_rate=3e-4,
        grad_norm=1.2 + noise(0, 0.1),
        cpu_percent=92 + noise(0, 4),
        memory_bytes=4_120_000_000 + chance.randrange(10**7),
        gpu_utilization_percent=float(chance.randrange(90, 100)),
        gpu_memory_bytes=97 << 30,
        gpu_power_w=chance.randrange(590_000, 650_000) / 1_000,
        gpu_temperature_c=float(chance.randrange(60, 68)),
        gpu_memory_total_bytes=143_771_000_000,
        gpu_clock_mhz=chance.choice((1965, 1980)),
        gpu_throttle="",
        gpu_ecc_errors=0,
        gpu_nvlink_rx_bytes_per_s=9.1e10 + noise(0, 1e9),
        gpu_nvlink_tx_bytes_per_s=9.1e10 + noise(0, 1e9),
        gpu_pcie_rx_bytes_per_s=2.2e9 + noise(0, 1e7),
        gpu_pcie_tx_bytes_per_s=2.2e9 + noise(0, 1e7),
    )


def spreads(ranks: int, chance: random.Random) -> tuple[Spread, ...]:
    def one(name: str, mean: float) -> Spread:
        low, p10, p50, p90, high = sorted(mean * (1 + chance.gauss(0, 0.02)) for _ in range(5))
        who = chance.randrange(ranks), chance.randrange(ranks)
        return Spread(name, ranks, mean, low, p10, p50, p90, high, *who)

    return tuple(one(name, chance.random() * 100) for name in (*CURVES, "step"))


def cluster(ranks: int, at_s: float, chance: random.Random, *, listed: bool) -> Iterator[Event]:
    for name in ("backend", "ray", "telemetry", "prometheus"):
        yield SourceHealth(at_s=at_s, source=name, ok=True)
    machines = -(-ranks // 8)
    pods = tuple(
        Pod(
            f"train-h200-{n}",
            "h200",
            NodeType.WORKER,
            PodPhase.RUNNING,
            True,
            f"10.0.{n // 200}.{n}",
        )
        for n in range(machines)
    )
    yield PodsListed(at_s=at_s, source="backend", pods=pods)
    if not listed:
        return
    gpus = tuple(
        Gpu(n, "NVIDIA H200", chance.random() * 100, 97 << 30, 143_771_000_000, 600, 61)
        for n in range(min(8, ranks))
    )
    nodes = tuple(
        Node(pod.name, pod.ip, pod.name, False, True, chance.random() * 100, 1 << 36, 1 << 40, gpus)
        for pod in pods
    )
    yield NodesListed(at_s=at_s, source="ray", nodes=nodes)


def hour(ranks: int, seconds: int) -> Iterator[tuple[float, list[Event]]]:
    """By second: the events."""
    chance = random.Random(1)
    placements = tuple(
        Placement(rank, f"node-{rank // 8}", f"10.0.0.{rank // 8}", rank, (rank % 8,))
        for rank in range(ranks)
    )
    begin: list[Event] = [
        ClusterSeen(
            at_s=START_S,
            source="backend",
            ref=ClusterRef("kuberay", "train"),
            health=ClusterHealth.READY,
        ),
        RunSeen(
            at_s=START_S,
            source="telemetry",
            run_id=RUN,
            name="llama",
            state=RunState.RUNNING,
            world_size=ranks,
        ),
        AttemptStarted(
            at_s=START_S, source="telemetry", run_id=RUN, attempt=1, placements=placements
        ),
    ]
    for second in range(1, seconds + 1):
        at_s = START_S + second
        now = [*begin, *cluster(ranks, at_s, chance, listed=second % 2 == 0)]
        begin = []
        reported = range(ranks)
        if ranks > FEW:
            first = second * TOLD % ranks
            reported = range(first, min(ranks, first + TOLD))
        samples = tuple(sample(rank, at_s, second, chance) for rank in reported)
        wide = spreads(ranks, chance) if ranks > FEW else ()
        now.append(
            RankSampled(
                at_s=at_s,
                source="telemetry",
                run_id=RUN,
                samples=samples,
                spreads=wide,
                attempt=1 if wide else 0,
                reporting=ranks if wide else None,
            )
        )
        if second % 30 == 0:
            now.append(
                MetricsReported(
                    at_s=at_s,
                    source="telemetry",
                    run_id=RUN,
                    attempt=1,
                    metrics={"loss": 2 + chance.random(), "accuracy": chance.random()},
                    checkpoint=Checkpoint(second * 20, f"/checkpoints/{second}", size_bytes=10**9),
                )
            )
        yield at_s, now


def record(path: Path, ranks: int, seconds: int = HOUR_S) -> float:
    """As the recorder's thread does it, a commit a second. Seconds of processor time."""
    clock, event_filter = Turned(), EventFilter()
    writer = Writer(path, monotonic=clock)
    took_s = 0.0
    for at_s, events in hour(ranks, seconds):
        clock.now_s = at_s
        began = time.process_time()
        for event in events:
            for kept in event_filter.kept(event, at_s):
                writer.put(kept, event.at_s)
        writer.commit(None, 0)
        took_s += time.process_time() - began
    writer.commit(None, 0, last=True)
    writer.close()
    return took_s


@dataclass(frozen=True, slots=True)
class Hour:
    """The cost of an hour with this number of ranks, in seconds of one CPU."""

    ranks: int
    size_bytes: int
    record_s: float
    replay_s: float
    back_s: tuple[float, ...]
    """Going back: by 10 s, a minute, half an hour, then to the beginning."""
    memory_bytes: int
    """That the replay takes, all of it: the store, the keyframes, Python."""


def hour_of(ranks: int) -> Hour:
    """In a separate process, so that its memory is measured alone."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "a.cockpit"
        record_s = record(path, ranks)
        context = multiprocessing.get_context("spawn")
        with context.Pool(1) as pool:
            replay_s, back_s, memory_bytes = pool.apply(replay, (path,))
        return Hour(ranks, path.stat().st_size, record_s, replay_s, back_s, memory_bytes)


def replay(path: Path) -> tuple[float, tuple[float, ...], int]:
    """From the beginning to the end, as a screen has it, and back."""

    def timed(act: Callable[[], None]) -> float:
        began = time.process_time()
        act()
        player.settle()
        return time.process_time() - began

    with Recording.open(path) as recording:
        player = Player(recording, paused=True, work=time.process_time)
        forward_s = timed(lambda: player.seek(player.end_s))
        ways: list[Callable[[], None]] = [partial(player.move, by) for by in (-10, -60, -1_800)]
        back_s = tuple(map(timed, [*ways, lambda: player.seek(player.begin_s)]))
    return forward_s, back_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024


MB_A_RANK_HOUR = 1.0
TIMES_REAL = 100.0
BACK_S = 1.0


def measure(worlds: Sequence[int] = (2, 64, 1_000, 5_000)) -> Table:
    began = load()
    lines = []
    for ranks in worlds:
        say(f"an hour of {ranks} ranks …")
        found = hour_of(ranks)
        promised = ranks <= 1_000
        size = found.size_bytes / 1e6 / ranks
        times, back_s = HOUR_S / found.replay_s, max(found.back_s)
        of = f"{ranks:,} ranks"
        lines += [
            Line(
                f"{of}: the file",
                f"{size:.3f} MB a rank-hour ({found.size_bytes / 1e6:.1f} MB)",
                f"≤ {MB_A_RANK_HOUR:g} MB",
                size <= MB_A_RANK_HOUR,
            ),
            Line(f"{of}: its writer", f"{found.record_s / HOUR_S:.2%} of a core"),
            Line(
                f"{of}: an hour replayed",
                f"{found.replay_s:.1f} s, {times:,.0f} × real time",
                f"≥ {TIMES_REAL:g} ×" if promised else "",
                times >= TIMES_REAL if promised else None,
            ),
            Line(
                f"{of}: going back, the slowest of four ways",
                f"{back_s:.2f} s",
                f"< {BACK_S:g} s" if promised else "",
                back_s < BACK_S if promised else None,
            ),
            Line(f"{of}: memory of the replay", f"{found.memory_bytes / 1e6:.0f} MB"),
        ]
    return Table(
        "The recorder",
        "An hour of samples at 1 Hz, every field set and every number noisy to its last digit. "
        "More than 64 ranks are told as 64 in turn and the spreads over all. Times are of one "
        "processor, which is the clock's where nobody else has it.",
        lines,
        began,
    )


if __name__ == "__main__":
    chosen = [int(word) for word in sys.argv[1:]]
    sys.exit(show(partial(measure, chosen) if chosen else measure))
