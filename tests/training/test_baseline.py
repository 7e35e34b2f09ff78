"""The job of one process: it needs no Ray, and resumes by its name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.cluster import ROOT
from training.jobs import baseline
from training.jobs.baseline import Settings
from training.jobs.plain import end

SMALL = ["--width", "8", "--batch-size", "64", "--epochs", "2", "--run-name", "small"]
WITHOUT_RAY = """
import sys
sys.modules["ray"] = None  # as where it is not installed
from training.jobs.baseline import main
main()
"""


def test_baseline_trains_without_ray_and_resumes_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [*SMALL, "--storage-path", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_RAY, *argv, "--max-steps", "20"],
        cwd=ROOT,
        env={name: reported for name, reported in os.environ.items() if name != "RAY_ADDRESS"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"after 20 steps; its checkpoints are in {tmp_path / 'small'}\n")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(sys, "argv", ["baseline", *argv])
    baseline.main()
    reported = capsys.readouterr().out
    assert "resumed at step 20, exactly" in reported
    assert "after 46 steps" in reported
    baseline.main()
    assert "it was finished before, after 46 steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (Settings(storage_path="s3://id:key@bucket"), "s3://bucket/ contains credentials"),
        (Settings(gpu="true"), "gpu=true, but rank 0 of this host has no GPU"),
        (Settings(accumulate=2_000), "do not go round 2000 micro-batches"),
    ],
)
def test_unsupported_settings_are_reported_in_one_sentence(
    settings: Settings, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("training.jobs.plain.RESULTS", str(tmp_path))
    with pytest.raises(SystemExit, match="stopped: ") as ended:
        end(baseline.rank(settings))
    assert why in str(ended.value)
