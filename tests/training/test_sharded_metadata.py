"""`.metadata` of a checkpoint in parts is a pickle: what is read of it, and what is refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pyarrow.fs import LocalFileSystem  # type: ignore[import-untyped]
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata

from training.checkpoint import rank_part, sharded
from training.checkpoint.manifest import Damaged
from training.checkpoint.sharded import METADATA
from training.parallel import IncompatibleCheckpoint
from training.parallel.single_device import AVERAGE, MODEL, OPTIMIZER
from training.serving import weights

RAN: list[str] = []


class Planted:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return RAN.append, ("it ran",)


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


def parts() -> dict[str, Any]:
    tensors = {
        "a": torch.arange(12.0).reshape(3, 4),
        "b": torch.ones(2, dtype=torch.bfloat16),
        "c": torch.tensor(7),
        "d": torch.ones(1, 2, 2, 2).to(memory_format=torch.channels_last),
    }
    return dict(sharded.save(tensors))


def write(directory: Path, states: dict[str, Any]) -> Path:
    rank_part.write(LocalFileSystem(), str(directory), states, rank=0, world_size=1, step=4)
    return directory


def listed(directory: Path, metadata: object) -> Path:
    """With this pickle as its `.metadata`, listed with the right digest."""
    return write(directory, parts() | {METADATA: memoryview(pickle.dumps(metadata))})


def test_tensors_are_loaded(tmp_path: Path) -> None:
    directory = write(tmp_path / "c", parts())
    assert sharded.is_in_parts(directory)
    sizes = {name: tuple(found.size) for name, found in sharded.saved(directory).items()}
    assert sizes == {"a": (3, 4), "b": (2,), "c": (), "d": (1, 2, 2, 2)}
    loaded = {"a": torch.zeros(3, 4), "c": torch.tensor(0)}
    sharded.load(directory, loaded)
    assert loaded["a"].flatten().tolist() == list(range(12))
    assert int(loaded["c"]) == 7


def test_unlisted_metadata_is_neither_read_nor_taken_for_the_model(tmp_path: Path) -> None:
    whole: dict[str, Any] = {MODEL: {"w": torch.ones(1)}, OPTIMIZER: {}, AVERAGE: {}}
    directory = write(tmp_path / "c", whole)
    (directory / METADATA).write_bytes(pickle.dumps(Planted()))
    assert not sharded.is_in_parts(directory)
    with pytest.raises(Damaged, match=r"\.metadata is not listed"):
        sharded.saved(directory)
    with pytest.raises(Damaged, match=r"\.metadata is not listed"):
        sharded.load(directory, {})
    assert RAN == []


def test_changed_metadata_is_not_unpickled(tmp_path: Path) -> None:
    directory = write(tmp_path / "c", parts())
    planted = pickle.dumps(Planted())
    size = (directory / METADATA).stat().st_size
    (directory / METADATA).write_bytes(planted.ljust(size, b"."))
    with pytest.raises(Damaged, match="SHA-256"):
        sharded.saved(directory)
    assert RAN == []


def test_listed_metadata_loads_no_class_but_those_of_tensors(tmp_path: Path) -> None:
    """Who can write the directory can write the manifest too."""
    directory = listed(tmp_path / "c", Planted())
    with pytest.raises(Damaged, match="is not part of a checkpoint of tensors"):
        sharded.saved(directory)
    assert RAN == []


def test_pickled_objects_inside_parts_are_refused(tmp_path: Path) -> None:
    """torch would load such an entry with weights_only=False."""
    directory = listed(tmp_path / "c", Metadata({"a": BytesStorageMetadata()}, storage_data={}))
    with pytest.raises(Damaged, match="BytesStorageMetadata"):
        sharded.load(directory, {"a": torch.zeros(1)})


@pytest.mark.parametrize("name", ["../outside.distcp", "/etc/passwd", "__1_0.distcp"])
def test_only_listed_files_are_read(name: str, tmp_path: Path) -> None:
    states = parts()
    metadata = pickle.loads(states[METADATA])
    for item in metadata.storage_data.values():
        item.relative_path = name
    with pytest.raises(Damaged, match="not listed"):
        sharded.load(listed(tmp_path / "c", metadata), {"c": torch.tensor(0)})


@pytest.mark.parametrize("raw", [b"", b"\x80", b"garbage", pickle.dumps([1]), pickle.dumps({})])
def test_garbled_metadata_is_damage(raw: bytes, tmp_path: Path) -> None:
    directory = write(tmp_path / "c", parts() | {METADATA: memoryview(raw)})
    with pytest.raises(Damaged):
        sharded.saved(directory)


def test_serving_reports_damaged_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = listed(tmp_path / "c", Planted())
    monkeypatch.setattr(weights, "read", lambda directory: _Made())
    with pytest.raises(IncompatibleCheckpoint, match="its parts cannot be read"):
        weights.loaded("c", directory, torch.device("cpu"))
    assert RAN == []


class _Made:
    def build(self) -> torch.nn.Module:
        return torch.nn.Linear(1, 1)
