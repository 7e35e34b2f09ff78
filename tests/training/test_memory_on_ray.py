"""A run on a real Ray with checkpoints in memory, whose rank is killed."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.training.cluster import Cluster, Outcome, bodies, drive
from training.telemetry.wire import AttemptStart, Notice, Record, Tick

pytestmark = [pytest.mark.slow, pytest.mark.ray]

JOB = ["-m", "training.jobs.checkpointed", "--model", "mlp", "--width", "32"]
EVERY = ["--memory-every-steps", "1", "--save-every-epochs", "100"]
LAST = 400
ENDS_S = 60.0


class Loss:
    """Kills rank 1, once the run has made some steps with checkpoints in memory."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._first = 0
        """The newest step when the holders of all nodes had started."""
        self.seen = 0
        """The newest step when the rank was killed."""

    def __call__(self, records: list[Record]) -> None:
        if self.seen or not notices(records, "CheckpointsInMemoryBegin"):
            return
        step = newest_step(records)
        self._first = self._first or step
        if step >= self._first + self._steps:
            starts = [item.body for item in records if isinstance(item.body, AttemptStart)]
            os.kill(starts[-1].workers[1].pid, signal.SIGKILL)
            self.seen = step


def notices(records: list[Record], reason: str) -> list[str]:
    found = bodies(records, Notice)
    return [notice.message for notice in found if notice.reason == reason]


def holding() -> list[int]:
    """Ray's processes that have memory for checkpoints."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if not (path / "cmdline").read_bytes().startswith(b"ray::"):
                continue
            links = [str(link.readlink()) for link in (path / "fd").iterdir()]
            if any(link.startswith("/memfd:checkpoint") for link in links):
                found.append(int(path.name))
    return found


def newest_step(records: list[Record]) -> int:
    ticks = bodies(records, Tick)
    return max((rank.step for tick in ticks for rank in tick.ranks), default=0)


def trained(cluster: Cluster, name: str, loss: Loss) -> Outcome:
    storage = ["--storage-path", str(cluster.directory / "results"), "--run-name", name]
    end = ["--epochs", "100", "--max-steps", str(LAST), "--min-step-s", "0.1"]
    return drive(cluster, [*JOB, *EVERY, *storage, *end], loss, limit_s=900)


def check(outcome: Outcome, loss: Loss) -> None:
    assert outcome.code == 0, outcome.output[-4000:]
    assert loss.seen, outcome.output[-4000:]
    texts = notices(outcome.records, "Resumed")
    assert len(texts) == 1, (loss.seen, outcome.output[-4000:])
    assert texts[0].startswith("resumes from memory, step "), "the storage has no checkpoint"
    assert int(texts[0].split()[-1]) >= loss.seen - 2
    assert "checkpoints in memory: 3 steps of each shard" in outcome.output
    assert newest_step(outcome.records) == LAST
    deadline = time.monotonic() + ENDS_S
    while holding():  # Ray ends the actors of a job after its driver
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_run_resumes_from_memory_after_a_rank_is_killed_and_leaves_no_memory(
    cluster: Cluster,
) -> None:
    loss = Loss(steps=30)
    check(trained(cluster, "rank", loss), loss)
