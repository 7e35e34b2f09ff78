"""Runs that are killed and resume from the memory of the nodes that are left."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch

from tests.training.memory_nodes import SETTINGS, Kill, Nodes, Started, Trained, holding, train
from tests.training.ranks import on_ranks
from training.checkpoint.memory import checkpoints, need, sets
from training.checkpoint.memory.checkpoints import MemoryCheckpoints
from training.checkpoint.memory.writer import Writer
from training.connection import ANSWER_S, Address, NoAnswer
from training.loop.settings import TrainSettings
from training.loop.world import World
from training.parallel.settings import ShardSettings
from training.parallel.sharded import Sharded
from training.stop import Stop
from training.telemetry.worker import attempt_observer

LAST = SETTINGS.max_steps


@pytest.fixture(scope="module")
def smooth(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Two ranks, without a failure."""
    with holding("a", "b") as started:
        folder = tmp_path_factory.mktemp("smooth")
        return on_ranks(2, train, folder, started.nodes, ("a", "b"))[0]


def killed(
    started: Started, folder: Path, places: tuple[str, ...], kill: Kill, every: int = 1
) -> None:
    """Train until a rank ends itself; the others fail with an error of gloo, or are ended."""
    with pytest.raises((BrokenProcessPool, RuntimeError)):
        on_ranks(len(places), train, folder, started.nodes, places, SETTINGS, kill, every)


def resumed_at(run: Trained) -> int:
    assert run.resumed.startswith("resumes from memory, step "), run.resumed
    return int(run.resumed.split()[4].rstrip(":"))


def assert_same(run: Trained, smooth: Trained) -> None:
    assert run.losses == {step: smooth.losses[step] for step in run.losses}
    assert max(run.losses) == LAST
    for own, other in zip(run.weights, smooth.weights, strict=True):
        assert torch.equal(own, other)


@pytest.mark.parametrize("every", [1, 3])
def test_run_resumes_bit_for_bit_from_memory_after_a_node_is_lost(
    every: int, smooth: Trained, tmp_path: Path
) -> None:
    with holding("a", "b") as started:
        killed(started, tmp_path, ("a", "b"), Kill(rank=1, step=11), every)
        started.lose("b")
        started.add("c")
        run = on_ranks(2, train, tmp_path, started.nodes, ("a", "c"), SETTINGS, None, every)[0]
    assert 11 - 2 * every <= resumed_at(run) <= 11
    assert min(run.losses) == resumed_at(run) + 1
    assert_same(run, smooth)


def test_kill_during_a_copy_and_a_flipped_bit_leave_the_last_whole_step(
    smooth: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    folder = tmp_path / "run"
    with holding("a", "b") as started:
        killed(started, folder, ("a", "b"), Kill(rank=0, step=9, copying=True))
        started.flip("a", rank=0)
        run = on_ranks(2, train, folder, started.nodes, ("a", "b"))[0]
        assert resumed_at(run) in (7, 8), "rank 0's shard is read from node b"
        assert_same(run, smooth)
        held = [started.memory(node) for node in ("a", "b")]
    assert held[0] == held[1], "each node has its own shard and the other's"
    assert list(tmp_path.glob("cockpit-restored-*")) == []


def test_two_lost_nodes_resume_from_the_storage_and_report_it(
    smooth: Trained, tmp_path: Path
) -> None:
    settings = replace(SETTINGS, checkpoint_every_steps=5)
    with holding("a", "b", "c") as started:
        kill = Kill(rank=1, step=12)
        with pytest.raises((BrokenProcessPool, RuntimeError)):
            on_ranks(3, train, tmp_path, started.nodes, ("a", "b", "c"), settings, kill)
        started.lose("a", "b")
        started.add("d")
        started.add("e")
        run = on_ranks(3, train, tmp_path, started.nodes, ("d", "e", "c"), settings)[0]
    assert run.resumed in {
        f"resumes from the storage, step {step}: 2 of 3 nodes with copies in memory are lost"
        for step in (5, 10)
    }
    assert max(run.losses) == LAST


def test_a_restart_before_the_first_copies_is_reported(tmp_path: Path) -> None:
    with holding("a") as started:
        again = partial(train, attempt=2)
        run = on_ranks(1, again, tmp_path, started.nodes, ("a",))[0]
    assert run.resumed == "starts at step 0: no node has copies in memory"


def test_run_with_fewer_ranks_resumes_from_the_memory_of_more(tmp_path: Path) -> None:
    with holding("a", "b") as started:
        killed(started, tmp_path, ("a", "b"), Kill(rank=1, step=6))
        started.lose("b")
        settings = replace(SETTINGS, workers=2)
        run = on_ranks(1, train, tmp_path, started.nodes, ("a",), settings)[0]
    assert resumed_at(run) in (4, 5, 6)
    assert max(run.losses) == LAST


def test_sharded_run_resumes_bit_for_bit_from_memory(tmp_path: Path) -> None:
    with holding("a", "b") as started:
        smooth = on_ranks(2, train_sharded, tmp_path / "smooth", started.nodes, ("a", "b"))[0]
    with holding("a", "b") as started:
        kill = Kill(rank=0, step=8)
        with pytest.raises((BrokenProcessPool, RuntimeError)):
            on_ranks(2, train_sharded, tmp_path / "run", started.nodes, ("a", "b"), kill)
        started.lose("a")
        started.add("c")
        run = on_ranks(2, train_sharded, tmp_path / "run", started.nodes, ("c", "b"))[0]
    assert resumed_at(run) in (6, 7, 8)
    assert_same(run, smooth)


def train_sharded(
    world: World, folder: Path, nodes: Nodes, places: Sequence[str], kill: Kill | None = None
) -> Trained:
    how = partial(Sharded, sharding=ShardSettings())
    return train(world, folder, nodes, places, SETTINGS, kill, how=how)


@dataclass
class Unknown(Nodes):
    """As when the actor that knows the holders is lost."""

    def known(self) -> Sequence[Address]:
        raise NoAnswer("lost")

    def of(self, node: str) -> Address:
        raise NoAnswer("lost")


def test_run_without_its_holders_continues_from_the_storage(tmp_path: Path) -> None:
    settings = replace(SETTINGS, checkpoint_every_steps=5)
    on_ranks(1, train, tmp_path, Unknown(), ("a",), replace(settings, max_steps=5))
    run = on_ranks(1, train, tmp_path, Unknown(), ("a",), settings)[0]
    assert run.resumed == (
        "resumes from the storage, step 5: the copies in memory cannot be found: lost"
    )
    assert max(run.losses) == LAST
    ends = "no checkpoints in memory until the run is restarted: rank 0: lost"
    assert ends in run.printed


def test_copies_of_an_attempt_that_does_not_know_the_holders_are_not_those_of_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The holders may still have shards of earlier attempts, whose numbers are at most as high."""
    monkeypatch.setattr(attempt_observer, "attempt", lambda: 3)
    nothing: Any = None
    assert MemoryCheckpoints(nothing, Unknown(), "a", nothing, 1)._plan().attempt == 3


def test_rank_that_could_not_write_connects_again(smooth: Trained, tmp_path: Path) -> None:
    short = replace(SETTINGS, max_steps=12)
    with holding("a", "b") as started:
        ranks = on_ranks(2, train_with_a_cut, tmp_path, started.nodes, ("a", "b"), short)
        run = on_ranks(2, train, tmp_path, started.nodes, ("a", "b"))[0]
    assert [text for text in ranks[1].printed if "rank 1" in text] == [
        f"no checkpoints in memory until rank 1 can write: {CUT}",
        "rank 1 writes its shard into memory again",
    ]
    assert resumed_at(run) == 12
    assert_same(run, smooth)


CUT = "b did not store a copy"


def train_with_a_cut(
    world: World, folder: Path, nodes: Nodes, places: Sequence[str], settings: TrainSettings
) -> Trained:
    """Rank 1 loses its connection at step 5."""
    write = Writer._write

    def fails(writer: Writer, link: socket.socket, step: int, *work: Any) -> None:
        if (world.rank, step) == (1, 5):
            raise NoAnswer(CUT)
        write(writer, link, step, *work)

    with patch.object(Writer, "_write", fails), patch.object(checkpoints, "RECONNECT_S", 0.0):
        return train(world, folder, nodes, places, settings)


def test_pause_before_a_rank_connects_again_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing: Any = None
    memory = MemoryCheckpoints(nothing, Unknown(), "a", World(0, 1, 0, torch.device("cpu")), 1)
    clock = SimpleNamespace(s=0.0)
    connected: list[float] = []
    monkeypatch.setattr(checkpoints, "time", SimpleNamespace(monotonic=lambda: clock.s))
    monkeypatch.setattr(checkpoints, "Writer", lambda *_: connected.append(clock.s))
    for clock.s in range(5467):
        memory._connect_again("lost")
    assert connected == [60, 181, 422, 903, 1864, 3665, 5466]
    for clock.s in range(10_000, 10_100):
        memory._connect_again("lost again")
    assert connected[-1] == 10_060, "the last connection was good for long"


@pytest.mark.parametrize(
    ("lost", "waits"),
    [((), [ANSWER_S]), (("a",), [ANSWER_S, sets.STALLED_S - ANSWER_S])],
)
def test_holder_that_is_stalled_is_waited_for_if_no_step_is_whole_without_it(
    lost: tuple[str, ...],
    waits: list[float],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited: list[float] = []

    def waits_for(calls: Collection[Future[Any]], timeout_s: float) -> None:
        waited.append(timeout_s)
        if timeout_s == ANSWER_S:
            wait(calls, return_when=FIRST_COMPLETED)
            return
        os.kill(stalled, signal.SIGCONT)
        wait(calls)

    with holding("a", "b") as started:
        killed(started, tmp_path, ("a", "b"), Kill(rank=1, step=5))
        started.lose(*lost)
        stalled = started.processes["b"].pid or 0
        os.kill(stalled, signal.SIGSTOP)
        monkeypatch.setattr(sets, "wait", waits_for)
        found = sets.found(started.nodes.known())
    assert waited == waits
    assert len(found.lost) == 1
    assert found.sets[0].step in (3, 4, 5)


def test_too_little_memory_stops_the_run_with_the_need(tmp_path: Path) -> None:
    with holding("a", "b") as started, pytest.raises(Stop, match="checkpoints in memory need"):
        on_ranks(2, train_in_little_memory, tmp_path, started.nodes, ("a", "b"))


def train_in_little_memory(
    world: World, folder: Path, nodes: Nodes, places: Sequence[str]
) -> Trained:
    with patch.object(need, "MARGIN_BYTES", 1 << 60):
        return train(world, folder, nodes, places)
