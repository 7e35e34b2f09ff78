"""Without DeepSpeed its job explains how to install it; unsupported settings are always errors."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from pickle import UnpicklingError
from types import ModuleType
from typing import Any

import pytest
from pyarrow.fs import LocalFileSystem  # type: ignore[import-untyped]

from training.checkpoint import rank_part
from training.checkpoint.manifest import Damaged
from training.jobs import deepspeed
from training.jobs.deepspeed import Settings
from training.loop.world import alone
from training.models.mlp import MLP
from training.parallel.zero import CLASSES, TAG, Zero, _InMemory
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
def test_unsupported_deepspeed_settings_are_refused(
    settings: Settings, why: str, installed: None
) -> None:
    with pytest.raises(Stop, match=why):
        Zero(MLP((1, 8, 8), 10), alone("false"), settings, zero=settings)


@pytest.fixture
def its_classes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """An object of each class of `CLASSES`, of modules that are not DeepSpeed's."""
    made = []
    for module, name in CLASSES:
        stand_in = type(name, (), {"__module__": module})
        for each in ("deepspeed", module):
            monkeypatch.setitem(sys.modules, each, ModuleType(each))
        setattr(sys.modules[module], name, stand_in)
        made.append(stand_in())
    return made


def checkpoint(folder: Path, states: Any) -> str:
    """Write a checkpoint of one listed file, and return its path."""
    name = "mp_rank_00_model_states.pt"
    rank_part.write(LocalFileSystem(), str(folder), {name: states}, rank=0, world_size=1, step=4)
    return f"{folder}/{TAG}/{name}"


def test_deepspeed_reads_only_files_that_a_manifest_lists(
    tmp_path: Path, its_classes: list[Any]
) -> None:
    """It finds them by patterns: a planted file would be one of them."""
    engine, path = _InMemory(None), checkpoint(tmp_path, {"steps": 4})
    assert engine.load(path, map_location="cpu") == {"steps": 4}
    planted = "mp_rank_01_model_states.pt"
    shutil.copy(path, tmp_path / planted)
    with pytest.raises(Damaged, match=f"{planted} is not listed in any manifest"):
        engine.load(f"{tmp_path}/{TAG}/{planted}")


def test_deepspeeds_own_classes_are_read(tmp_path: Path, its_classes: list[Any]) -> None:
    read = _InMemory(None).load(checkpoint(tmp_path, {"own": its_classes}))
    assert list(map(type, read["own"])) == list(map(type, its_classes))


class Planted:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (os.environ["PLANTED"],)


def test_a_listed_file_of_deepspeed_runs_no_code(
    tmp_path: Path, its_classes: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED", str(tmp_path / "planted"))
    path = checkpoint(tmp_path, {"states": Planted()})
    with pytest.raises(UnpicklingError, match="mkdir"):
        _InMemory(None).load(path)
    assert not (tmp_path / "planted").exists()
