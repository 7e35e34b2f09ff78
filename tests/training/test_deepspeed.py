"""Without DeepSpeed its job explains how to install it; unsupported settings are always errors."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from training.jobs import deepspeed
from training.jobs.deepspeed import Settings
from training.loop.world import alone
from training.models.mlp import MLP
from training.parallel.zero import Zero
from training.stop import Stop

SETTINGS = Settings(
    model="mlp",
    data="digits",
    batch_size=15,
    width=8,
    dropout=0.2,
    epochs=1,
    max_steps=8,
    checkpoint_every_steps=4,
    warmup_steps=0,
)


@pytest.fixture
def not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deepspeed", None)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.parallel.zero.lacking", lambda: "")


def test_without_deepspeed_the_job_explains_how_to_install_it(
    not_installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["deepspeed"])
    with pytest.raises(SystemExit, match=r"pip install 'cockpit\[deepspeed\]'"):
        deepspeed.main()


def test_a_worker_without_deepspeed_stops_and_reports_it(not_installed: None) -> None:
    """It may be on another host than the driver."""
    with pytest.raises(Stop, match=r"pip install 'cockpit\[deepspeed\]'"):
        Zero(MLP((1, 8, 8), 10), alone("false"), SETTINGS, zero=SETTINGS)


def test_a_stage_that_zero_has_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["deepspeed", "--zero-stage", "4"])
    with pytest.raises(SystemExit, match="--zero-stage is 1, 2 or 3, not 4"):
        deepspeed.main()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (replace(SETTINGS, precision="fp16"), "--precision bf16"),
        (replace(SETTINGS, ema_decay=0.9), "--ema-decay 0"),
    ],
)
def test_what_deepspeed_cannot_do_here_is_refused(
    settings: Settings, why: str, installed: None
) -> None:
    with pytest.raises(Stop, match=why):
        Zero(MLP((1, 8, 8), 10), alone("false"), settings, zero=settings)
