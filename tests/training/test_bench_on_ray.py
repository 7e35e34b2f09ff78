"""The benchmark as a job of a Ray cluster: Ray Train's ranks against torchrun's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.cluster import Cluster, drive
from training.bench.results import read


@pytest.mark.nightly  # the benchmark on Ray: tests/launch/test_jobs_on_local.py
@pytest.mark.slow
@pytest.mark.ray
def test_ray_train_and_torchrun_take_turns_with_the_same_loop(
    cluster: Cluster, tmp_path: Path
) -> None:
    reported = ["--quick", "--gpu", "false", "--width", "8", "--what", "launchers"]
    reported += ["--storage-path", str(tmp_path), "--run-name", "run"]
    done = drive(cluster, ["-m", "training.jobs.benchmark", *reported])
    assert done.code == 0, done.output[-4000:]
    results = read(tmp_path / "run" / "results.json")
    assert results.failed == {}
    assert results.how == "2 ranks, started by Ray Train"
    compared = results.parts["launchers"]
    assert compared["ratio"]["n"] == 2
    assert compared["ray_s"]["median"] > 0
    assert compared["torchrun_s"]["median"] > 0
