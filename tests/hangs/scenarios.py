"""The scenarios of the corpus: each function is the training function of one run.

Every run first makes STEPS healthy steps. In the hangs rank 1 is the cause, unless the name states
otherwise. A rank's code does not use telemetry.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset

from cockpit.insight.hang.types import Kind

STEPS = 25
STEP_S = 0.05
FOREVER_S = 600.0

Run = Callable[[int, Path], None]


def steps(count: int = STEPS) -> None:
    for _ in range(count):
        time.sleep(STEP_S)
        dist.all_reduce(torch.ones(1024))


def _one_rank(act: Callable[[Path], object]) -> Run:
    """Rank 1 does `act` in place of its next step."""

    def run(rank: int, folder: Path) -> None:
        steps()
        if rank == 1:
            act(folder)
        steps()

    return run


def _fifo(folder: Path) -> Path:
    path = folder / "pipe"
    os.mkfifo(path)
    return path


def save_checkpoint(folder: Path) -> None:
    torch.save(torch.ones(1 << 20), _fifo(folder))


def read_file(folder: Path) -> None:
    with _fifo(folder).open("rb") as file:
        file.read()


def lock(_: Path) -> None:
    held = threading.Lock()
    with held, held:
        pass


def event(_: Path) -> None:
    threading.Event().wait()


class Stuck(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield 1
        time.sleep(FOREVER_S)


def data_loader(workers: int) -> Callable[[Path], None]:
    # A script's workers are forked. Those of a process of the corpus, which forkserver started,
    # would each import torch: seconds of CPU, which a watchdog with shorter times takes for work.
    start = "fork" if workers else None

    def act(_: Path) -> None:
        for _batch in DataLoader(Stuck(), num_workers=workers, multiprocessing_context=start):
            pass

    return act


def busy(seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        sum(range(10_000))


def evaluate(seconds: float) -> None:
    busy(seconds)


def write_checkpoint(folder: Path, seconds: float) -> None:
    end_s = time.monotonic() + seconds
    with (folder / "checkpoint").open("wb") as file:
        while time.monotonic() < end_s:
            file.seek(0)
            file.write(b"0" * (1 << 20))
            time.sleep(0.1)


def _other_op(rank: int, _: Path) -> None:
    steps()
    if rank == 1:
        dist.broadcast(torch.ones(4), 0)
    steps()


def _only_rank_0(rank: int, _: Path) -> None:
    """The bug of a barrier under `if rank == 0`, and then another collective."""
    steps()
    if rank == 0:
        dist.barrier()
    steps()


def _groups_in_other_order(rank: int, _: Path) -> None:
    first, second = dist.new_group([0, 1], group_desc="tp"), dist.new_group([0, 1], group_desc="dp")
    steps()
    for group in (first, second) if rank == 0 else (second, first):
        assert isinstance(group, dist.ProcessGroup)
        dist.all_reduce(torch.ones(8), group=group)


def _both_receive(rank: int, _: Path) -> None:
    steps()
    dist.recv(torch.ones(8), 1 - rank)


def _no_sender(rank: int, _: Path) -> None:
    steps()
    if rank == 0:
        dist.recv(torch.ones(8), 1)
    time.sleep(FOREVER_S)


def _subgroup(rank: int, _: Path) -> None:
    """Of three ranks 1 and 2 share a group, and rank 2 is late."""
    pair = dist.new_group([1, 2], group_desc="pair")
    steps()
    if rank == 2:
        time.sleep(FOREVER_S)
    if rank == 1:
        assert isinstance(pair, dist.ProcessGroup)
        dist.all_reduce(torch.ones(8), group=pair)
    steps()


def _everyone_sleeps(rank: int, _: Path) -> None:
    steps()
    time.sleep(FOREVER_S)


def _frozen(rank: int, _: Path) -> None:
    """The test stops the process of rank 1."""
    steps(10_000)


def _asynchronous(rank: int, _: Path) -> None:
    steps()
    if rank == 1:
        time.sleep(FOREVER_S)
    works = [dist.all_reduce(torch.ones(16), async_op=True) for _ in range(4)]
    works[-1].wait()


HANGS: dict[str, tuple[Run, Kind | None, tuple[int, ...] | None]] = {
    "sleep": (_one_rank(lambda _: time.sleep(FOREVER_S)), Kind.USER, (1,)),
    "frozen": (_frozen, Kind.FROZEN, (1,)),
    "other-op": (_other_op, Kind.MISMATCH, None),
    "groups-in-other-order": (_groups_in_other_order, Kind.DEADLOCK, (0, 1)),
    "lock": (_one_rank(lock), Kind.LOCK, (1,)),
    "event": (_one_rank(event), Kind.LOCK, (1,)),
    "queue": (_one_rank(lambda _: queue.Queue[Any]().get()), Kind.LOCK, (1,)),
    "future": (_one_rank(lambda _: Future[Any]().result()), Kind.LOCK, (1,)),
    "fifo": (_one_rank(read_file), Kind.STORAGE, (1,)),
    # It waits in C++ with the GIL held, so no Python runs in the process.
    "torch-save": (_one_rank(save_checkpoint), Kind.FROZEN, (1,)),
    "data-loader": (_one_rank(data_loader(0)), Kind.DATA, (1,)),
    "data-loader-worker": (_one_rank(data_loader(1)), Kind.DATA, (1,)),
    "child-process": (
        _one_rank(lambda _: subprocess.run([sys.executable, "-c", "import time; time.sleep(600)"])),
        Kind.CHILD,
        (1,),
    ),
    "barrier-on-rank-0": (_only_rank_0, Kind.MISMATCH, None),
    "both-receive": (_both_receive, Kind.DEADLOCK, (0, 1)),
    "no-sender": (_no_sender, Kind.USER, (1,)),
    "subgroup": (_subgroup, Kind.USER, (2,)),
    "asynchronous": (_asynchronous, Kind.USER, (1,)),
    "endless-loop": (_one_rank(lambda _: busy(FOREVER_S)), Kind.USER, (1,)),
    "everyone-sleeps": (_everyone_sleeps, Kind.USER, None),
}
"""By name: the run, the kind of the verdict, and its ranks where the world size does not matter."""

TWO_RANKS = frozenset({"groups-in-other-order", "both-receive"})
THREE_RANKS = frozenset({"subgroup"})


def _evaluation(rank: int, folder: Path) -> None:
    steps()
    if rank == 0:
        evaluate(8.0)
    steps(40)


def _checkpoint(rank: int, folder: Path) -> None:
    steps()
    if rank == 0:
        write_checkpoint(folder, 8.0)
    dist.barrier()
    steps(40)


def _uneven(rank: int, _: Path) -> None:
    for step in range(60):
        time.sleep(STEP_S * (1 + (step * 7 + rank * 3) % 5))
        dist.all_reduce(torch.ones(1024))


def _slow_start(rank: int, _: Path) -> None:
    dist.broadcast(torch.ones(16), 0)
    if rank == 0:
        time.sleep(8.0)
    steps(40)


def _compilation(rank: int, _: Path) -> None:
    dist.broadcast(torch.ones(16), 0)
    busy(8.0)
    steps(40)


def _pipeline(rank: int, _: Path) -> None:
    for _batch in range(80):
        time.sleep(STEP_S)
        if rank > 0:
            dist.recv(torch.ones(64), rank - 1)
        if rank + 1 < dist.get_world_size():
            dist.send(torch.ones(64), rank + 1)
        dist.all_reduce(torch.ones(8), async_op=True).wait()


def _data_loader(rank: int, _: Path) -> None:
    for _batch in DataLoader(Slow(), num_workers=1):
        dist.all_reduce(torch.ones(8))


class Slow(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        for batch in range(60):
            time.sleep(0.1)
            yield batch


def _all_evaluate(rank: int, _: Path) -> None:
    steps()
    evaluate(6.0 + rank)
    steps(40)


def _recurring_pauses(rank: int, _: Path) -> None:
    for _epoch in range(4):
        steps(20)
        time.sleep(3.0)


def _slow_steps(rank: int, _: Path) -> None:
    for _step in range(10):
        time.sleep(1.5)
        dist.all_reduce(torch.ones(8))


def _sweep(rank: int, _: Path) -> None:
    """The trials of a Tune sweep do not wait for each other, and end one after the other."""
    group = [dist.new_group([other]) for other in range(dist.get_world_size())][rank]
    assert isinstance(group, dist.ProcessGroup)
    for _step in range(40 * (rank + 1)):
        time.sleep(STEP_S)
        dist.all_reduce(torch.ones(8), group=group)


def _resized(rank: int, folder: Path) -> None:
    """An elastic run continues with fewer ranks, and later with all of them again."""
    world = dist.get_world_size()
    steps()
    for size, name in ((max(1, world - 1), "fewer"), (world, "all")):
        if dist.is_initialized():
            dist.destroy_process_group()
        if rank >= size:
            time.sleep(3.0)  # its replacement starts
            continue
        time.sleep(1.0)
        dist.init_process_group("gloo", f"file://{folder}/{name}", rank=rank, world_size=size)
        steps(40)


def _growing_steps(rank: int, _: Path) -> None:
    for step in range(40):
        time.sleep(STEP_S * (1 + step / 4))
        dist.all_reduce(torch.ones(8))


def _late_rank(rank: int, _: Path) -> None:
    for step in range(25):
        time.sleep(1.5 if rank == 1 and step % 8 == 7 else STEP_S)
        dist.all_reduce(torch.ones(8))


HEALTHY: dict[str, Run] = {
    "steady": lambda rank, _: steps(120),
    "evaluation": _evaluation,
    "checkpoint": _checkpoint,
    "uneven": _uneven,
    "slow-start": _slow_start,
    "compilation": _compilation,
    "pipeline": _pipeline,
    "late-rank": _late_rank,
    "data-loader": _data_loader,
    "all-evaluate": _all_evaluate,
    "recurring-pauses": _recurring_pauses,
    "slow-steps": _slow_steps,
    "tune-sweep": _sweep,
    "growing-steps": _growing_steps,
    "elastic-resize": _resized,
}

WORLDS = (2, 3, 4)


def variants(names: Iterable[str]) -> list[str]:
    """Return each scenario with each supported number of ranks: `sleep:3`."""
    found = []
    for name in names:
        worlds = (2,) if name in TWO_RANKS else (3,) if name in THREE_RANKS else WORLDS
        found += [f"{name}:{world}" for world in worlds]
    return found
