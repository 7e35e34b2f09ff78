"""The environment of NCCL, gloo and the allocator, and errors before they start."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from training.jobs.checkpointed import Settings
from training.settings import parse
from training.techniques import environment, network


def test_settings_as_they_are_by_default_report_nothing() -> None:
    """Ray has no idle process for a worker with a separate environment."""
    assert environment.variables(Settings()) == {}


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("interface", "eth1", {"NCCL_SOCKET_IFNAME": "=eth1", "GLOO_SOCKET_IFNAME": "eth1"}),
        ("infiniband", "on", {"NCCL_IB_DISABLE": "0"}),
        ("infiniband", "off", {"NCCL_IB_DISABLE": "1"}),
        ("nccl_algorithm", "ring", {"NCCL_ALGO": "allreduce:ring"}),
        ("nccl_algorithm", "collnet", {"NCCL_ALGO": "allreduce:collnetdirect,collnetchain"}),
        ("nccl_debug", "info", {"NCCL_DEBUG": "INFO"}),
        (
            "allocator",
            "expandable_segments:True",
            {"PYTORCH_ALLOC_CONF": "expandable_segments:True"},
        ),
    ],
)
def test_only_what_differs_is_reported(setting: str, value: str, told: dict[str, str]) -> None:
    assert environment.variables(Settings(**{setting: value})) == told  # type: ignore[arg-type]


def test_an_interface_that_is_not_there_is_refused_with_those_that_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = network.interfaces()
    assert "lo" in there
    monkeypatch.setattr(os, "environ", {})
    with pytest.raises(network.NoInterface, match=r"no network interface eth99: give .* lo"):
        environment.enter(Settings(interface="eth99"))
    assert os.environ == {}
    environment.enter(Settings(interface="lo", nccl_debug="warn"))
    assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"
    assert os.environ["NCCL_DEBUG"] == "WARN"


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--nccl-algorithm", "star"], "invalid choice: 'star'"),
        (["--accumulate", "0"], "argument --accumulate: 0 is not 1 or more"),
        (["--memory-fraction", "1.5"], "1.5 is not 0.01 to 1"),
        (["--ema-decay", "-1"], "-1.0 is not 0 to 1"),
        (["--powersgd-after", "1"], "1 is not 2 or more"),
        (["--bucket-mb", "many"], "invalid int value: 'many'"),
    ],
)
def test_invalid_choices_and_numbers_are_refused_at_the_command_line(
    flags: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit:
        parse(Settings, "job", "summary", flags)
    assert exit.value.code == 2
    assert sentence in capsys.readouterr().err


def test_the_list_of_what_is_reported_needs_no_torch() -> None:
    script = "import sys, training.techniques.network; print('torch' in sys.modules)"
    reported = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert reported.stdout == "False\n"
