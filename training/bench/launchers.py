"""DDP under Ray Train compared with DDP under torchrun: the same loop, alternating.

Both groups of ranks run on this host for the whole time; a group trains only in its turns, and
otherwise waits without using CPU. The groups differ in what started the ranks, and in what runs
beside them.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import torch
import torch.distributed as dist

from training.bench import units
from training.bench.cpu_affinity import own_cores
from training.bench.loop import Loop, same_step
from training.bench.repeated import Quartiles, ratios, spread
from training.bench.section import Finding, Level, Section, Table
from training.bench.settings import BenchSettings
from training.data import load
from training.jobs.fit import fit
from training.loop.world import World, on_ray, torchrun
from training.parallel.replicated import replicated
from training.techniques import environment

PROMISED = 0.98
"""The required share of torchrun's throughput, in steady state."""
RAY, TORCHRUN = "Ray Train", "torchrun"
JOIN_TIMEOUT_S = 180.0
TURN_TIMEOUT_S = 600.0
END_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Launchers:
    model: str
    device: str
    ranks: int
    batch_size: int
    turn_steps: int
    ray_s: Quartiles
    """Seconds of a step."""
    torchrun_s: Quartiles
    ratio: Quartiles
    """Ray Train's throughput divided by torchrun's, for each turn."""


class Lost(RuntimeError):
    """A group of ranks did not start, or died: which one, as one line."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One group of ranks, as seen by the coordinator of the turns."""

    name: str
    stream: IO[str]

    def take(self, steps: int) -> float:
        """Returns seconds. Raises Lost."""
        try:
            print(steps, file=self.stream, flush=True)
            line = self.stream.readline()
        except OSError as error:
            raise Lost(f"{self.name} does not answer: {error}") from error
        if not line:
            raise Lost(f"{self.name} ended during the measurement")
        return float(line)


def alternate(world: World, settings: BenchSettings, name: str, address: str) -> None:
    """A rank's part: train the requested number of steps, until no more are requested."""
    if world.device.type == "cpu":
        torch.set_num_threads(1)
    data = load(settings)
    with ExitStack() as held:
        if world.device.type == "cpu":
            held.enter_context(own_cores(world, settings.cores_each))
        loop = held.enter_context(
            Loop(settings, world, replicated, data, same_step(settings, world, data))
        )
        # Not NCCL: a rank that waits with it keeps its GPU busy, beside those that train.
        waiting: Any = dist.new_group(backend="gloo")
        stream = None
        if world.rank == 0:
            connection = held.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(address)
            stream = held.enter_context(connection.makefile("rw"))
            print(name, file=stream, flush=True)
        while True:
            ordered = torch.zeros((), dtype=torch.int64)
            if stream is not None:
                ordered.fill_(int(stream.readline() or 0))
            dist.broadcast(ordered, 0, group=waiting)
            steps = int(ordered)
            if not steps:
                return
            took_s = loop.turn(steps)
            if stream is not None:
                print(took_s, file=stream, flush=True)


def measure(settings: BenchSettings) -> Launchers:
    """Call in the driver's process; all ranks must run on its host. Raises Lost."""
    with ExitStack() as held:
        # A short path: a socket's path has at most 107 characters.
        folder = Path(held.enter_context(TemporaryDirectory(prefix="turns", dir="/tmp")))
        address = str(folder / "turns")
        server = held.enter_context(socket.socket(socket.AF_UNIX))
        server.bind(address)
        server.listen(2)
        server.settimeout(1.0)
        output = folder / "torchrun.log"
        by_torchrun = held.enter_context(started(settings, address, output))
        pool = ThreadPoolExecutor(1, "ray-train")
        by_ray = pool.submit(fit, partial(rank_of_ray, address=address), settings, "benchmark-ray")
        with joined(server, by_torchrun, output, by_ray) as turns:
            taken: dict[str, list[float]] = {RAY: [], TORCHRUN: []}
            for round_ in range(settings.rounds + 1):
                # The order alternates, so that neither always has a warmer cache.
                order = (RAY, TORCHRUN) if round_ % 2 else (TORCHRUN, RAY)
                for name in order:
                    took_s = turns[name].take(settings.turn_steps) / settings.turn_steps
                    if round_:
                        taken[name].append(took_s)
        by_ray.result()
        pool.shutdown()
    return result(settings, taken[RAY], taken[TORCHRUN])


def result(
    settings: BenchSettings, ray_s: Sequence[float], torchrun_s: Sequence[float]
) -> Launchers:
    """From the seconds of a step, for each turn."""
    return Launchers(
        settings.model,
        settings.gpu,
        settings.workers,
        settings.batch_size,
        settings.turn_steps,
        spread(ray_s),
        spread(torchrun_s),
        ratios(torchrun_s, ray_s),
    )


def rank_of_ray(config: dict[str, Any], address: str) -> dict[str, Any]:
    """Lists in `elsewhere` the ranks that are not on the driver's host."""
    world = on_ray()
    here = world.gather_all(Path(address).exists())
    if not all(here):
        return {"elsewhere": [rank for rank, is_here in enumerate(here) if not is_here]}
    alternate(world, BenchSettings(**config), RAY, address)
    return {}


@contextmanager
def started(
    settings: BenchSettings, address: str, output: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """The same number of ranks under torchrun; they end when no more steps are requested."""
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    argv += ["--nproc-per-node", str(settings.workers), "-m", "training.bench.launchers"]
    process = subprocess.Popen(
        [*argv, address, json.dumps(asdict(settings))],
        env=os.environ | environment.variables(settings) | {"OMP_NUM_THREADS": "1"},
        stdout=output.open("w"),
        stderr=subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.terminate()  # torchrun ends its ranks then
            process.wait()


@contextmanager
def joined(
    server: socket.socket, by_torchrun: subprocess.Popen[bytes], output: Path, by_ray: Future[Any]
) -> Iterator[dict[str, Turn]]:
    """Both groups, once they have connected; `output` is torchrun's.

    Raises Lost, and what Ray Train raised.
    """
    deadline = time.monotonic() + JOIN_TIMEOUT_S
    with ExitStack() as held:
        turns: dict[str, Turn] = {}
        while len(turns) < 2:
            if by_torchrun.poll() is not None:
                raise Lost(f"torchrun ended before its first turn: {last_line(output.read_text())}")
            if by_ray.done():
                ranks = by_ray.result().return_value["elsewhere"]
                raise Lost(
                    f"ranks {', '.join(map(str, ranks))} of Ray Train are not on the driver's "
                    "host, where torchrun's are: no fair comparison"
                )
            if time.monotonic() > deadline:
                raise Lost(
                    f"of {RAY} and {TORCHRUN} only {', '.join(turns) or 'none'} came within "
                    f"{JOIN_TIMEOUT_S:.0f} s"
                )
            try:
                connection, _ = server.accept()
            except TimeoutError:
                continue
            held.enter_context(connection)
            connection.settimeout(TURN_TIMEOUT_S)
            stream = held.enter_context(connection.makefile("rw"))
            name = stream.readline().strip()
            turns[name] = Turn(name, stream)
        yield turns


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it had no output"


def section(result: Launchers) -> Section:
    rows = (
        (RAY, result.ray_s.text(units.seconds), result.ratio.text(units.ratio)),
        (TORCHRUN, result.torchrun_s.text(units.seconds), "1"),
    )
    return Section(
        "Ray Train against torchrun",
        f"{result.model}, {result.ranks} ranks with DDP and batches of {result.batch_size}, the "
        "loop of all jobs, both groups of ranks on one host alternating every "
        f"{result.turn_steps} steps; the ratio of throughputs is of each pair of turns, medians "
        "(quartiles).",
        (Table(("launcher", "step", "throughput ÷ torchrun's"), rows),),
        (),
        findings(result),
    )


def findings(result: Launchers) -> tuple[Finding, ...]:
    text = f"Ray Train trains at {result.ratio.median:.3f} of torchrun's throughput"
    if result.ratio.median >= PROMISED:
        return (Finding(Level.GOOD, f"{text}."),)
    if result.ratio.high >= PROMISED:
        return (
            Finding(
                Level.NOTE,
                f"{text}, and its upper quartile is {result.ratio.high:.3f}: the turns are too "
                "uneven for a result.",
                "Measure again on a quiet machine, with more rounds and turn_steps.",
            ),
        )
    return (
        Finding(
            Level.PROBLEM,
            f"{text}, less than {PROMISED}.",
            "Compare the environments of the ranks: OMP_NUM_THREADS, CPU affinity, NCCL_*, and "
            "the other processes of Ray on the host.",
        ),
    )


def main() -> None:
    address, settings = sys.argv[1], BenchSettings(**json.loads(sys.argv[2]))
    world = torchrun(settings.gpu, settings.timeout_s)
    try:
        alternate(world, settings, TORCHRUN, address)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
