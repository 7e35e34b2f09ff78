"""DDP under torchrun: ranks that die, the agents' rendezvous, and refused settings."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.cluster import ROOT
from training import telemetry
from training.data.examples import NoData
from training.jobs import ddp_torchrun, plain
from training.jobs.agent import Nodes, start
from training.jobs.ddp_torchrun import Settings
from training.loop.world import World
from training.parallel.single_device import whole
from training.telemetry.ray_train.end_reason import DIED, of_ranks

pytestmark = pytest.mark.usefixtures("temporary_folder")

STEPS = 30
SMALL = Settings(
    width=8, batch_size=32, epochs=2, max_steps=STEPS, checkpoint_every_steps=10, num_to_keep=2
)
ARGV = ["--width", "8", "--batch-size", "32", "--epochs", "2", "--max-steps", str(STEPS)]
JOB = ["-m", "training.jobs.ddp_torchrun", *ARGV, "--checkpoint-every-steps", "10"]


def dies_once(settings: Settings) -> dict[str, Any]:
    """Rank 1 is killed at its 15th step, the first time."""
    reported, died = telemetry.step, Path(settings.storage_path) / "died"

    def step(*, step: int = 0, **numbers: Any) -> None:
        reported(step=step, **numbers)
        if step == 15 and os.environ["RANK"] == "1" and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    vars(telemetry)["step"] = step
    return ddp_torchrun.rank(settings)


def always_dies(settings: Settings) -> dict[str, Any]:
    raise FloatingPointError("a bad card")


def weights(run: Path) -> dict[str, Any]:
    newest = max(run.glob("checkpoint_*"))
    assert newest.name.endswith(f"{STEPS:012}")
    loaded: dict[str, Any] = torch.load(newest / "model.pt", weights_only=True)
    return loaded


@pytest.fixture(scope="module")
def met(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of two undisturbed ranks, started by two agents of one rank each."""
    folder = tmp_path_factory.mktemp("met")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    meet = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-id", "pair"]
    meet += ["--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--local-addr", "127.0.0.1"]
    agents = [agent([*meet, *JOB, "--storage-path", str(folder)]) for _ in range(2)]
    lines = [one.communicate(timeout=560)[0] for one in agents]
    assert [one.returncode for one in agents] == [0, 0], lines
    assert "".join(lines).count(f"after {STEPS} steps") == 1, "rank 0 alone says so"
    return weights(folder / "ddp_torchrun-pair")


def agent(argv: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *argv],
        cwd=ROOT,
        env={name: reported for name, reported in os.environ.items() if name != "RAY_ADDRESS"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.slow
def test_a_rank_that_is_killed_costs_a_restart_and_not_a_bit_of_what_two_nodes_learn(
    met: dict[str, Any], tmp_path: Path
) -> None:
    settings = replace(SMALL, storage_path=str(tmp_path), run_name="killed", max_restarts=1)
    result = start(dies_once, settings, 2, Nodes("killed"))
    assert (tmp_path / "died").exists()
    assert result["step"] == STEPS, result
    same(weights(tmp_path / "killed"), met)
    kept = sorted(path.name for path in (tmp_path / "killed").glob("checkpoint_*"))
    assert kept == [f"checkpoint_{step:012}" for step in (23, 30)]


def test_a_rank_that_always_fails_is_named_with_its_error(tmp_path: Path) -> None:
    settings = replace(SMALL, storage_path=str(tmp_path), max_restarts=0)
    failed = start(always_dies, settings, 1, Nodes("fails"))["failed"]
    assert failed == "rank 0: FloatingPointError: a bad card"


def test_gpus_that_are_asked_for_and_absent_end_it_before_it_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    result = start(always_dies, replace(SMALL, gpu="true"), 2, Nodes("gpu"))
    assert result["stopped"].startswith("gpu=true, but rank 1 of this host has no GPU")


def test_the_rank_that_died_with_no_output_is_named_before_those_that_missed_it() -> None:
    lost = "RuntimeError: [/x/gloo/pair.cc:534] Connection closed by peer [127.0.0.1]:4242"
    assert of_ranks({0: lost, 1: DIED}) == f"rank 1: {DIED}"
    assert of_ranks({0: lost, 2: "ValueError: no more data"}) == "rank 2: ValueError: no more data"
    assert of_ranks({0: lost}).startswith("rank 0: lost a peer: Connection closed by peer")
    assert of_ranks({0: "", 1: ""}) == ""


def test_a_rank_that_is_ended_because_another_one_has_is_not_named() -> None:
    assert of_ranks({1: DIED, 0: DIED}) == f"rank 1: {DIED}"
    bad = "ValueError: no more data"
    assert of_ranks({1: bad, 0: DIED}) == f"rank 1: {bad}"
    assert of_ranks({2: bad, 0: bad, 1: DIED}) == f"ranks 0, 2: {bad}"


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, weight in expected.items():
        assert torch.equal(found[name], weight), name


def test_examples_that_one_rank_cannot_read_end_the_attempt_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object) -> dict[str, Any]:
        raise NoData("a.png cannot be read")

    def act(_: World, what: Callable[[], object]) -> object:
        return what()

    cpu = torch.device("cpu")
    settings = replace(SMALL, storage_path=str(tmp_path), run_name="unreadable")
    monkeypatch.setattr(plain, "train", unreadable)
    monkeypatch.setattr(World, "together", act)
    with pytest.raises(NoData, match=r"a\.png cannot be read"):
        plain.work(settings, World(1, 2, 1, cpu), whole)
    alone = plain.work(settings, World(0, 1, 0, cpu), whole)
    assert alone["stopped"] == "a.png cannot be read"

    monkeypatch.setattr(ddp_torchrun, "torchrun", lambda *_: World(0, 1, 0, cpu))
    monkeypatch.setattr(ddp_torchrun, "work", unreadable)
    with pytest.raises(NoData):
        ddp_torchrun.rank(settings)
