"""The file that one driver leaves for the next."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from training.telemetry.ray_train import lineage
from training.telemetry.ray_train.lineage import FILE, Lineage

fs = pytest.importorskip("pyarrow.fs")


@pytest.fixture
def storage(tmp_path: Path) -> Any:
    """As Ray Train's StorageContext; nothing is there before the first checkpoint."""
    return SimpleNamespace(
        storage_filesystem=fs.LocalFileSystem(), experiment_fs_path=str(tmp_path / "runs" / "a")
    )


def test_lineage_file_of_one_driver_is_read_by_the_next(storage: Any) -> None:
    assert lineage.read(storage) is None
    lineage.write(storage, Lineage("ab12", 1, is_up=True))
    lineage.write(storage, Lineage("ab12", 2))
    assert lineage.read(storage) == Lineage("ab12", 2, is_up=False)


def test_lineage_stays_as_it_was_if_it_cannot_be_written(storage: Any) -> None:
    class Full(fs.LocalFileSystem):  # type: ignore[misc, name-defined]
        def open_output_stream(self, path: str) -> Any:
            super().open_output_stream(path).close()
            raise OSError(28, "No space left on device")

    lineage.write(storage, Lineage("ab12", 1))
    storage.storage_filesystem = Full()
    with pytest.raises(OSError, match="No space left"):
        lineage.write(storage, Lineage("ab12", 2))
    assert lineage.read(storage) == Lineage("ab12", 1)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"run": "x"}', '{"run":1,"attempts":"many"}'])
def test_unreadable_lineage_is_none(storage: Any, text: str) -> None:
    path = Path(storage.experiment_fs_path)
    path.mkdir(parents=True)
    (path / FILE).write_text(text)
    assert lineage.read(storage) is None
