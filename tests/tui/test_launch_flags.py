"""The line of flags in the launch dialog: the environment of a job, its own cluster, a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from cockpit.tui.dialogs.confirm import Confirm
from tests.tui.conftest import Open


async def test_flags_are_sent_with_the_job(cockpit: Open) -> None:
    async with cockpit(size=(100, 40)) as seen:
        await seen.press("L", "enter", "ctrl+g", *"--env A=1 --driver-cpus 2", "ctrl+s")
        await seen.until(lambda: bool(seen.simulation.ray.submitted))
        [sent] = seen.simulation.ray.submitted
        assert sent["runtime_env"]["env_vars"]["A"] == "1"
        assert sent["entrypoint_num_cpus"] == 2


async def test_wrong_flags_come_back_with_the_reason(cockpit: Open) -> None:
    async with cockpit(size=(100, 40)) as seen:
        await seen.press("L", "enter", "ctrl+g", *"--nothing", "ctrl+s")
        await seen.sees("unrecognized arguments: --nothing", "flags --nothing")
        assert not seen.simulation.ray.submitted
        await seen.press("escape")
        await seen.sees("Launch a job")


async def test_command_is_launched_after_its_upload_is_confirmed(
    cockpit: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    monkeypatch.chdir(tmp_path)
    async with cockpit(size=(100, 40)) as seen:
        await seen.press("L", "ctrl+g", *"-- python train.py", "enter")
        await seen.until(lambda: isinstance(seen.app.screen, Confirm))
        await seen.sees("Launch python train.py.", "Upload 1 file")
        await seen.press("y")
        await seen.until(lambda: bool(seen.simulation.ray.submitted))
        assert seen.simulation.ray.commands == ["python train.py"]
        await seen.until(lambda: "The command is job train-" in seen.toasts)
