"""Checkpoints on a disk: written, damaged in every way, chosen from, put aside."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from pyarrow.fs import LocalFileSystem  # type: ignore[import-untyped]

from training.checkpoint import rank_part
from training.checkpoint.filesystem import COPY, temporary_directory
from training.checkpoint.manifest import DAMAGED, Damaged, check
from training.checkpoint.restore import Whole, newest_whole
from training.checkpoint.snapshot import snapshot
from training.checkpoint.storage import SNAPSHOT, RunDirectory

RANKS = 2


def write(directory: Path, step: int = 40, ranks: int = RANKS, of: int = RANKS) -> Path:
    for rank in range(ranks):
        states: dict[str, Any] = {f"rank-{rank}.pt": {"rank": rank}}
        if rank == 0:
            states["shared.pt"] = {"weights": torch.arange(1000.0) + step}
        path = str(directory)
        rank_part.write(LocalFileSystem(), path, states, rank=rank, world_size=of, step=step)
    return directory


def edit(directory: Path, change: Callable[[dict[str, Any]], None], *, sign: bool = True) -> None:
    from training.checkpoint import manifest

    file = directory / "manifest-0.json"
    whole = json.loads(file.read_text())
    change(whole["manifest"])
    if sign:
        whole["sha256"] = manifest._digest(whole["manifest"])
    file.write_text(json.dumps(whole))


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def test_a_checkpoint_is_whole_when_every_ranks_part_is(tmp_path: Path) -> None:
    assert check(write(tmp_path / "c")).step == 40
    loaded = torch.load(tmp_path / "c" / "shared.pt", weights_only=True)
    assert loaded["weights"].tolist() == [40.0 + i for i in range(1000)]
    assert not list(tmp_path.rglob("*.part"))


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (
        lambda at: (at / "shared.pt").write_bytes((at / "shared.pt").read_bytes()[:-7]),
        r"shared.pt has [\d,]+ of [\d,]+ bytes",
    ),
    "emptied": (lambda at: (at / "rank-1.pt").write_bytes(b""), r"rank-1.pt has 0 of [\d,]+ bytes"),
    "one bit flipped": (lambda at: flip(at / "shared.pt"), "shared.pt is not what was written"),
    "a file missing": (lambda at: (at / "rank-0.pt").unlink(), "rank-0.pt is missing"),
    "the manifest missing": (
        lambda at: (at / "manifest-1.json").unlink(),
        "manifest-1.json is missing: rank 1 did not finish its part",
    ),
    "the first manifest missing": (
        lambda at: (at / "manifest-0.json").unlink(),
        "manifest-0.json is missing: rank 0 did not finish its part",
    ),
    "the manifest cut off": (
        lambda at: (at / "manifest-0.json").write_text('{"manifest": {'),
        "manifest-0.json is garbled",
    ),
    "the manifest of something else": (
        lambda at: (at / "manifest-0.json").write_text("[1, 2]"),
        "manifest-0.json is garbled",
    ),
    "the manifest without a field": (
        lambda at: edit(at, lambda said: said.pop("step")),
        "manifest-0.json is garbled",
    ),
    "the manifest changed": (
        lambda at: edit(at, lambda said: said.update(step=41), sign=False),
        "manifest-0.json is not what was written",
    ),
    "of a later version": (
        lambda at: edit(at, lambda said: said.update(format=2)),
        "manifest-0.json is of format 2; this reads 1",
    ),
    "parts of two steps": (
        lambda at: edit(at, lambda said: said.update(step=20)),
        "rank 1's part is of step 40 and 2 ranks, rank 0's of step 20 and 2",
    ),
    "marked": (
        lambda at: (at / DAMAGED).write_text("a bad disk\n"),
        "marked before: a bad disk",
    ),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_is_named(kind: str, tmp_path: Path) -> None:
    damage, why = DAMAGES[kind]
    damage(write(tmp_path / "c"))
    with pytest.raises(Damaged, match=why):
        check(tmp_path / "c")


def test_a_directory_that_no_longer_exists_or_empty_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(Damaged, match="its directory is missing"):
        check(tmp_path / "c")
    with pytest.raises(Damaged, match="rank 0 did not finish"):
        check(tmp_path)


@pytest.mark.parametrize("lines", range(4))
def test_a_kill_in_the_midst_of_writing_leaves_nothing_that_passes_for_whole(
    lines: int, tmp_path: Path
) -> None:
    """In the first file, the second, the manifest, and just before that gets its name."""

    class Killed(Exception):
        pass

    class Dying(LocalFileSystem):  # type: ignore[misc]
        """A file system that ends with its `lines`-th file, or with the renaming."""

        def __init__(self) -> None:
            super().__init__()
            self.opened = 0

        def create_dir(self, path: str) -> None:
            LocalFileSystem().create_dir(path)

        def open_output_stream(self, path: str) -> Any:
            self.opened += 1
            stream = LocalFileSystem().open_output_stream(path)
            if self.opened > lines:
                stream.write(b"half")
                raise Killed
            return stream

        def move(self, path: str, to: str) -> None:
            raise Killed

    states: dict[str, Any] = {"rank-0.pt": {}, "shared.pt": {}}
    with pytest.raises(Killed):
        rank_part.write(Dying(), str(tmp_path / "c"), states, rank=0, world_size=1, step=1)
    with pytest.raises(Damaged, match="rank 0 did not finish its part"):
        check(tmp_path / "c")


def test_copies_that_killed_processes_have_left_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.checkpoint.filesystem.gettempdir", lambda: str(tmp_path))
    left, young = tmp_path / f"{COPY}a", tmp_path / f"{COPY}b"
    left.mkdir()
    young.mkdir()
    os.utime(left, (0, 0))
    with temporary_directory() as own:
        assert own.is_dir()
        assert (left.exists(), young.exists()) == (False, True)
        in_use = own.rename(tmp_path / own.name)
        os.utime(in_use, (0, 0))
        with temporary_directory():
            assert in_use.is_dir(), "its process lives"
        in_use.rename(own)
    assert not own.exists()


def test_full_disk_is_an_os_error_though_torch_raises_another_one(tmp_path: Path) -> None:
    class FullStream(BytesIO):
        def write(self, data: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    class Full(LocalFileSystem):  # type: ignore[misc]
        def create_dir(self, path: str) -> None:
            pass

        def open_output_stream(self, path: str) -> BytesIO:
            return FullStream()

    with pytest.raises(OSError, match="No space left"):
        rank_part.write(Full(), str(tmp_path / "c"), {"a.pt": {}}, rank=0, world_size=1, step=1)


def test_a_rank_that_never_finished_its_part_leaves_the_checkpoint_unused(tmp_path: Path) -> None:
    with pytest.raises(Damaged, match="rank 1 did not finish its part"):
        check(write(tmp_path / "c", ranks=1))


def test_the_newest_whole_one_is_chosen_and_each_before_it_reported(tmp_path: Path) -> None:
    paths = [str(write(tmp_path / name, step)) for name, step in (("c", 30), ("b", 20), ("a", 10))]
    flip(tmp_path / "c" / "shared.pt")
    (tmp_path / "b" / "rank-1.pt").unlink()
    reported: dict[str, str] = {}
    with newest_whole(paths, nullcontext, reported.__setitem__) as found:
        assert found == Whole(paths[2], paths[2])
    assert reported == {
        paths[0]: "shared.pt is not what was written: its SHA-256 differs",
        paths[1]: "rank-1.pt is missing",
    }
    with newest_whole(paths[:2], nullcontext, reported.__setitem__) as found:
        assert found is None


def test_a_storage_that_cannot_be_read_just_now_is_no_damage(tmp_path: Path) -> None:
    def refused(path: str) -> Any:
        raise PermissionError(path)

    reported: dict[str, str] = {}
    found = newest_whole(["c"], refused, reported.__setitem__)
    with pytest.raises(PermissionError), found:
        pass
    assert reported == {}


def test_a_snapshot_keeps_what_the_state_was() -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    state = {"a": [parameter, (1, "x")], "step": 7}
    copied = snapshot(state)
    with torch.no_grad():
        parameter.zero_()
    assert copied["a"][0].tolist() == [1, 1, 1]
    assert not copied["a"][0].requires_grad
    assert (copied["a"][1], copied["step"]) == ((1, "x"), 7)


@pytest.mark.gpu
def test_a_snapshot_of_a_gpu_is_in_host_memory_and_what_it_was() -> None:
    weights = torch.arange(10_000_000, device="cuda", dtype=torch.float32)
    copied = snapshot({"weights": weights})["weights"]
    weights.zero_()
    assert copied.device.type == "cpu"
    assert copied.sum(dtype=torch.float64).item() == 10_000_000 * 9_999_999 / 2


def run(directory: Path) -> RunDirectory:
    return RunDirectory(LocalFileSystem(), str(directory))


def test_damaged_checkpoint_is_moved_marked_and_unlisted(tmp_path: Path) -> None:
    older, newer = (str(write(tmp_path / f"checkpoint_{n}")) for n in (1, 2))
    (tmp_path / "checkpoint_9").write_text("a file")
    assert run(tmp_path).checkpoints() == [newer, older]
    assert run(tmp_path).put_aside(newer, "why not") == f"kept in {tmp_path}/damaged/checkpoint_2"
    assert check(tmp_path / "damaged" / "checkpoint_2").step == 40, "nothing of it is lost"
    assert run(tmp_path).checkpoints() == [older]
    with pytest.raises(Damaged, match="marked before: why not"):
        check(Path(newer))
    assert run(tmp_path).put_aside(newer, "again") == "it was put aside before"


def test_a_storage_that_takes_no_mark_does_not_hinder_the_fall_back(tmp_path: Path) -> None:
    class ReadOnly:
        def get_file_info(self, path: str) -> Any:
            return LocalFileSystem().get_file_info(path)

        def __getattr__(self, name: str) -> Any:
            def refuse(*_: object) -> None:
                raise OSError(30, "Read-only file system")

            return refuse

    path = str(write(tmp_path / "checkpoint_1"))
    done = RunDirectory(ReadOnly(), str(tmp_path)).put_aside(path, "why")
    assert done == "it could not be put aside ([Errno 30] Read-only file system)"
    assert check(Path(path)).step == 40


def listed(directory: Path, *names: str) -> None:
    results = [{"version": 0, "checkpoint_dir_name": name, "metrics": {}} for name in names]
    (directory / SNAPSHOT).write_text(json.dumps({"checkpoint_results": results}))


def test_a_listed_checkpoint_that_no_longer_exists_does_not_keep_the_run_from_starting(
    tmp_path: Path,
) -> None:
    assert run(tmp_path).repair() == []
    write(tmp_path / "checkpoint_1")
    listed(tmp_path, "checkpoint_1", "checkpoint_2")
    assert run(tmp_path).repair() == [
        "checkpoint_2 is missing: a marked directory is in its place",
    ]
    assert (tmp_path / "checkpoint_2").is_dir(), "Ray Train looks for it"
    assert run(tmp_path).repair() == []
    assert not run(tmp_path).lost_track


@pytest.mark.parametrize("text", ["", '{"checkpoint_results": [{"che', "[]", "null"])
def test_a_list_that_was_cut_off_is_put_aside(text: str, tmp_path: Path) -> None:
    (tmp_path / SNAPSHOT).write_text(text)
    (reported,) = run(tmp_path).repair()
    assert reported.endswith(f"is garbled; put aside as {SNAPSHOT}.damaged")
    assert run(tmp_path).lost_track
    assert run(tmp_path).repair() == []


@pytest.mark.parametrize(
    "change",
    [
        {"world_size": 0},
        {"world_size": "2"},
        {"rank": 1},
        {"step": -1},
        {"files": [{"name": "../shared.pt", "size_bytes": 1, "sha256": "a"}]},
        {"files": [{"name": "/etc/passwd", "size_bytes": 1, "sha256": "a"}]},
        {"files": [{"name": "x" * 300, "size_bytes": 1, "sha256": "a"}]},
        {"files": [{"name": "a\0b", "size_bytes": 1, "sha256": "a"}]},
        {"files": [{"name": "shared.pt", "size_bytes": "1", "sha256": "a"}]},
    ],
)
def test_signed_manifest_of_another_shape_is_damage(change: dict[str, Any], tmp_path: Path) -> None:
    """Neither an invalid file name nor a file elsewhere is opened."""
    directory = write(tmp_path / "c")
    edit(directory, lambda said: said.update(change))
    with pytest.raises(Damaged, match="garbled"):
        check(directory)
