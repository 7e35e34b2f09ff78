"""A folder's checkpoints after the run resumed from an earlier step, or from none."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.checkpoint.filesystem import located
from training.checkpoint.in_folder import FolderCheckpoints
from training.checkpoint.storage import RunDirectory

FILE = "state.pt"


def save(checkpoints: FolderCheckpoints, *steps: int) -> None:
    for step in steps:
        checkpoints.report({}, step, {FILE: {"step": step}})


def opened(folder: Path, *, keep: int) -> FolderCheckpoints:
    return FolderCheckpoints(folder, 0, 1, may_start_over=True, in_background=False, keep=keep)


def finished(folder: Path) -> list[int]:
    run = RunDirectory(*located(str(folder)))
    paths = [path for path in run.checkpoints() if run.is_finished(path)]
    return sorted(int(path.rpartition("_")[2]) for path in paths)


@pytest.mark.parametrize(("whole", "newest"), [((), []), ((20, 40), [20, 40])])
def test_damaged_checkpoint_does_not_replace_a_later_one(
    whole: tuple[int, ...], newest: list[int], tmp_path: Path
) -> None:
    with opened(tmp_path, keep=9) as before:
        save(before, *whole, 70, 80, 90)
    for step in (70, 80, 90):
        (tmp_path / f"checkpoint_{step:012}" / FILE).write_bytes(b"")
    with opened(tmp_path, keep=2) as checkpoints:
        with checkpoints.newest() as path:
            assert (path is not None) == bool(whole)
        assert finished(tmp_path) == newest, "of ranks that save 70 again none has said so yet"
        save(checkpoints, 50)
        assert finished(tmp_path) == [*newest, 50][-2:]
        save(checkpoints, 60, 75)
        assert finished(tmp_path) == [60, 75]
        save(checkpoints, 80, 90, 100)
        assert finished(tmp_path) == [90, 100]
    assert len(list(tmp_path.glob("checkpoint_*"))) == 2, "they are deleted in their turn"
