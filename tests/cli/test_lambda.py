"""`cockpit plan|up|down|status --on lambda`: what is asked, and refused before a launch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cockpit.backends.lambda_cloud import state
from cockpit.backends.lambda_cloud.description import Cloud
from cockpit.cli.main import main
from tests.backends.lambda_cloud.conftest import described, key, lambda_cloud
from tests.backends.lambda_cloud.test_instances import make
from tests.lambda_cloud import KEY, LambdaCloud

__all__ = ["described", "key", "lambda_cloud"]


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (["up", "--on", "lambda"], 2, "needs a file"),
        (["up", "--on", "lambda", "FILE"], 2, "for confirmation"),
        (["up", "--on", "lambda", "FILE", "--read-only", "--yes"], 4, "read-only mode"),
        (["up", "--on", "lambda", "FILE", "--size", "3"], 2, "--size is not for --on lambda"),
        (["up", "--on", "hosts", "FILE"], 2, "has no 'lambda'"),
        (["down", "--on", "lambda", "FILE", "--yes"], 3, "no record of instances"),
        (["plan", "--on", "kubernetes"], 2, "cockpit up --on kubernetes --dry-run"),
        (["plan", "--on", "lambda", "FILE", "-o", "ray-up"], 3, "are not up"),
        (["plan", "--on", "lambda", "none.toml"], 2, "cannot be read"),
        (["pods", "--hosts", "FILE"], 3, "are not up"),
        (["status", "FILE"], 2, "A file is for --on lambda"),
        (["status", "--on", "lambda", "FILE"], 0, "has no instances"),
        (["status", "--on", "lambda", "FILE", "--watch"], 2, "--watch and --on lambda cannot"),
    ],
)
def test_nothing_is_launched(
    lambda_cloud: LambdaCloud,
    described: Cloud,
    words: list[str],
    code: int,
    what: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([described.path if word == "FILE" else word for word in words]) == code
    assert what in capsys.readouterr().err
    assert not [request for request in lambda_cloud.asked if not request.startswith("GET")]


def test_dry_run_prints_the_plan_with_its_steps_and_cost(
    lambda_cloud: LambdaCloud, described: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", "--on", "lambda", described.path, "--dry-run"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert "Launch gpu-1 in us-east-1: gpu_1x_a10 (1 GPU, 2 CPUs, 16 GiB), $0.75 an hour." in said
    assert "On each instance: check the driver of the GPUs." in said
    assert (
        "On each instance: install 4 packages in /home/ubuntu/cockpit-venv by constraints.txt."
        in said
    )
    assert said[-2:] == [
        "Cost: $1.74 an hour for 3 instances.",
        "Dry run: nothing was changed.",
    ]
    assert lambda_cloud.instances == {}


def test_missing_or_wrong_key_is_an_error_without_it(
    lambda_cloud: LambdaCloud,
    described: Cloud,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LAMBDA_API_KEY", "wr0ng-key-s3same")
    assert main(["plan", "--on", "lambda", described.path]) == 4
    said = capsys.readouterr().err
    assert "wants credentials" in said
    assert "wr0ng-key-s3same" not in said
    monkeypatch.delenv("LAMBDA_API_KEY")
    assert main(["plan", "--on", "lambda", described.path]) == 2
    assert "no API key" in capsys.readouterr().err


def test_status_is_printed_in_the_format_that_was_asked_for(
    lambda_cloud: LambdaCloud, described: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["status", "--on", "lambda", described.path, "-o"]
    assert main([*asked, "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["name"], found["instances"], found["dollars"]) == ("lab", [], 0)
    make(described)
    assert main([*asked, "jsonpath={.instances[*].name}"]) == 0
    assert capsys.readouterr().out == "head gpu-1 gpu-2\n"
    assert main([*asked, "yaml"]) == 0
    assert "name: lab\n" in capsys.readouterr().out


def test_down_asks_and_another_file_of_the_same_name_is_refused(
    lambda_cloud: LambdaCloud,
    described: Cloud,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make(described)
    assert main(["down", "--on", "lambda", described.path, "--dry-run"]) == 0
    said = capsys.readouterr().err
    assert "Terminate the instances of cluster lab: head, gpu-1, gpu-2. Files on them" in said
    assert "Remove from the account: SSH key." in said
    other = tmp_path / "other.toml"
    other.write_text(Path(described.path).read_text())
    assert main(["down", "--on", "lambda", str(other), "--yes"]) == 2
    assert "was made from another file" in capsys.readouterr().err
    assert len(lambda_cloud.alive) == 3
    assert main(["status", "--on", "lambda", described.path]) == 0
    assert "$1.74 an hour; $0.00 so far." in capsys.readouterr().out
    assert main(["down", "--on", "lambda", described.path, "--yes"]) == 0
    assert "It has cost about $0.00." in capsys.readouterr().err
    assert state.load("lab") is None
    assert KEY not in said
