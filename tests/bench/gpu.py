"""What only a GPU shows: `python -m tests.bench.gpu [PART …]`.

nvml: a rank's GPU numbers against those of nvidia-smi, and matrix products against the peak of the
device. precision: the throughput of each technique. memory: what a checkpoint in memory after every
step costs. run: a run of one rank on a local cluster, its GPU numbers and MFU, and a kill of its
pod. Both pods of the cluster use the first GPU: CUDA_VISIBLE_DEVICES names it by its index and by
its UUID. With `--small`, models are small enough for a CPU, to test this program itself.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from tests.bench import memory_stall
from tests.bench.table import Line, Table, load, say, show
from tests.training.memory_nodes import holding
from training.bench import techniques
from training.bench.settings import BenchSettings
from training.loop.settings import TrainSettings
from training.loop.world import alone
from training.telemetry.gpu.gpu import Gpu
from training.telemetry.worker.flops import peak_flops

GPT: dict[str, Any] = {
    "model": "gpt-124m",
    "data": "synthetic-tokens",
    "vocabulary": 50257,
    "sequence_length": 1024,
    "batch_size": 16,
    "precision": "bf16",
    "fused": True,
    "examples": 3200,
}
SMALL = {**GPT, "model": "gpt-tiny", "vocabulary": 256, "sequence_length": 64, "precision": "fp32"}
STATE_MB = (3, 500)
ROOT = Path(__file__).parents[2]
TIMEOUT_S = 240.0
SPARES_S = 30.0
"""Until the spares are made."""


def smi(*names: str) -> list[float]:
    """The numbers of the first GPU by nvidia-smi."""
    argv = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"]
    text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return [float(word) for word in text.splitlines()[0].split(",")]


def uuid() -> str:
    argv = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()[0]


@contextmanager
def busy_gpu() -> Iterator[Callable[[], float]]:
    """Matrix products in bfloat16 on the GPU; yields a function that returns FLOPs per second."""
    size, done, end = 8192, [0], threading.Event()
    left, right = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))

    def work() -> None:
        while not end.is_set():
            for _ in range(10):
                torch.mm(left, right)
            torch.cuda.synchronize()
            done[0] += 10

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(2.0)
    began, before = time.perf_counter(), done[0]
    try:
        yield lambda: (done[0] - before) * 2.0 * size**3 / (time.perf_counter() - began)
    finally:
        end.set()
        thread.join()


def nvml(small: bool) -> list[Line]:
    if not torch.cuda.is_available():
        return [Line("NVML", f"no GPU: {Gpu(['0']).read()}")]
    lines: list[Line] = []
    found = {name: Gpu([name]) for name in ("0", uuid())}
    for gpu in found.values():
        gpu.read()
    with busy_gpu() as rate:
        time.sleep(3.0)
        names = ("utilization.gpu", "memory.used", "power.draw", "temperature.gpu", "clocks.sm")
        for name, gpu in found.items():
            began = time.perf_counter()
            read = gpu.read()
            took_s = time.perf_counter() - began
            theirs = smi(*names, "memory.total")
            ours = [
                read.utilization_percent or 0.0,
                (read.memory_bytes or 0) / 2**20,
                read.power_w or 0.0,
                read.temperature_c or 0.0,
                read.clock_mhz or 0.0,
                (read.memory_total_bytes or 0) / 2**20,
            ]
            pairs = zip((*names, "memory.total"), ours, theirs, strict=True)
            text = ", ".join(f"{label} {a:.0f} and {b:.0f}" for label, a, b in pairs)
            # Power, clock and temperature change from one reading to the next.
            same = all(abs(a - b) <= 0.15 * max(a, b, 1) for a, b in zip(ours, theirs, strict=True))
            lines.append(Line(f"GPU {name[:8]}: NVML and nvidia-smi", text, "within 15 %", same))
            lines.append(Line(f"GPU {name[:8]}: one reading", f"{1e3 * took_s:.0f} ms"))
            say(repr(read))
        flops, name = rate(), torch.cuda.get_device_name()
        peak = peak_flops(name) or 0.0
        share = flops / peak if peak else 0.0
        text = f"{flops / 1e12:.0f} of {peak / 1e12:.0f} TFLOP/s ({share:.0%})"
        lines.append(Line(f"matrix products on {name}", text, "50–100 %", 0.5 <= share <= 1.0))
    return lines


def precision(small: bool) -> list[Line]:
    chosen = {**(SMALL if small else GPT), "batch_size": 8, "fused": False}
    settings = BenchSettings(**chosen, workers=1, rounds=3, turn_steps=5, quick=small)
    found = techniques.measure(alone(), settings.for_this_run())
    lines = [
        Line(f"{found.model}, {item.name} ÷ fp32", f"{item.ratio.median:.2f}")
        for item in found.techniques
    ]
    return lines + [Line(item.name, item.why) for item in found.refused]


def memory(small: bool) -> list[Line]:
    lines: list[Line] = []
    for size_mb in STATE_MB:
        wide = size_mb > 100 and not small
        chosen: dict[str, Any] = {
            "model": "mlp",
            "width": 4500 if wide else 200,
            "data": "synthetic",
            "shape": "1x32x32",
            "classes": 10,
            "examples": 4096 * 48,
            "batch_size": 4096 * (4 if wide else 1),
        }
        settings = TrainSettings(
            **chosen,
            workers=1,
            max_steps=8 * memory_stall.GROUP,
            epochs=1000,
            save_every_epochs=1000,
        )
        lines += _memory_lines(settings)
    return lines


def _memory_lines(settings: TrainSettings) -> list[Line]:
    with holding(memory_stall.NODES[0]) as started, TemporaryDirectory() as folder:
        rank = memory_stall.train(alone(), Path(folder), started.nodes, settings)
    plain_s, saving_s = (
        statistics.median(step.wall_s for step in rank.of(saves=saves)) for saves in (False, True)
    )
    stall_s = statistics.median(step.stall_s for step in rank.of(saves=True))
    name = f"{rank.shard_bytes / 1e6:.0f} MB in memory after each step of {1e3 * plain_s:.1f} ms"
    return [
        Line(f"{name}: the loop waits", f"{1e3 * stall_s:.2f} ms"),
        Line(f"{name}: step with ÷ without", f"{saving_s / plain_s:.2f}"),
    ]


class Cockpit:
    """The command line of cockpit, in a home directory of its own."""

    def __init__(self, home: str) -> None:
        self._environment = {**os.environ, "HOME": home, "PYTHONPATH": str(ROOT)}
        self._environment.pop("XDG_STATE_HOME", None)
        if torch.cuda.is_available():
            self._environment["CUDA_VISIBLE_DEVICES"] = f"0,{uuid()}"

    def __call__(self, *argv: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "cockpit", *argv],
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        return done.stdout

    def rank(self, step: int) -> dict[str, Any]:
        """Rank 0, from this step on."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            found = json.loads(self("status", "-o", "json"))
            if found["ranks"] and (found["run"]["step"] or 0) >= step:
                return dict(found["ranks"][0])
            assert time.monotonic() < deadline, found
            time.sleep(1.0)


def run(small: bool) -> list[Line]:
    settings = SMALL if small else GPT
    chosen = [f"--set={key}={str(value).lower()}" for key, value in settings.items()]
    gpus = ["--gpus", "1"] if torch.cuda.is_available() else []
    with TemporaryDirectory() as directory:
        cockpit = Cockpit(directory)
        cockpit("local", "up", "--workers", "2", *gpus)
        try:
            stored = f"storage_path={directory}/checkpoints"
            cockpit("launch", "checkpointed", "--workers", "1", "--set", stored, *chosen)
            cockpit.rank(30)
            time.sleep(SPARES_S)
            lines = _rank_lines(cockpit.rank(30))
            killed = cockpit("kill", "0", "--yes").splitlines()[0]
            return [*lines, Line("a kill", killed)]
        finally:
            cockpit("local", "down", "--yes")


def _rank_lines(rank: dict[str, Any]) -> list[Line]:
    names = [name for name in rank if name.startswith("gpu_")]
    sections = ("data_wait_s", "forward_s", "backward_s", "optimizer_s", "comm_s")
    parts_s = sum(rank[name] or 0.0 for name in sections)
    return [
        Line("its GPU", ", ".join(f"{n[4:]} {rank[n]}" for n in names if rank[n] is not None)),
        Line("not reported", ", ".join(n[4:] for n in names if rank[n] is None)),
        Line("samples/s", f"{rank['samples_per_s']}"),
        Line("MFU", f"{rank['mfu_percent']} %"),
        Line("its sections ÷ its step", f"{parts_s / rank['step_time_s']:.2f}"),
    ]


PARTS: dict[str, Callable[[bool], list[Line]]] = {
    "nvml": nvml,
    "precision": precision,
    "memory": memory,
    "run": run,
}


def measure(names: Sequence[str], small: bool) -> Table:
    began, lines = load(), list[Line]()
    for name in names:
        say(f"{name} …")
        lines += PARTS[name](small)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return Table("On a GPU", f"{device}, torch {torch.__version__}.", lines, began)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--small", action="store_true", help="as on a CPU")
    args = parser.parse_args()
    if unknown := sorted(set(args.parts) - set(PARTS)):
        parser.error(f"no part is called {', '.join(unknown)}")
    return show(lambda: measure(args.parts or list(PARTS), args.small))


if __name__ == "__main__":
    sys.exit(main())
