"""Fixtures of the tests of drills."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """The directory of a run's only checkpoint, with files in it and in a folder."""
    directory = tmp_path / "run" / "checkpoint_1"
    (directory / "rank_0").mkdir(parents=True)
    (directory / "rank_0" / "model.pt").write_bytes(bytes(range(256)) * 40)
    (directory / "state.json").write_text("{}")
    (directory / "empty").write_text("")
    return directory
