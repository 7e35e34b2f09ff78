"""Pictures in Parquet files and in WebDataset's shards, in a folder and in a bucket."""

from __future__ import annotations

import io
import tarfile
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from pyarrow import parquet

from tests.training.object_store import Kind, ObjectStore
from tests.training.runs import one
from training.checkpoint.filesystem import located
from training.checkpoint.in_folder import FolderCheckpoints
from training.data import load
from training.data.example_random import Draws
from training.data.examples import Data, NoData
from training.data.pictures import parquet as rows
from training.data.sampler import MIXED, Sampler
from training.data.settings import DataSettings
from training.jobs.checkpointed import Settings
from training.loop import train as loop
from training.parallel.replicated import replicated

COUNT = 40
LABELS = [number % 3 for number in range(COUNT)]
ASKED = DataSettings(shape="3x16x16", batch_size=4)
ALL = np.arange(36)
FORMATS = ("parquet", "webdataset")


def png(number: int) -> bytes:
    """Brighter by number, and darker to the left: 20×18."""
    pixels = np.zeros((18, 20, 3), dtype=np.uint8)
    pixels[..., number % 3] = np.linspace(2 * number, 4 * number + 40, 20)
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "png")
    return content.getvalue()


PICTURES = [png(number) for number in range(COUNT)]


def put(place: str, name: str, content: bytes) -> None:
    filesystem, path = located(place)
    filesystem.create_dir(path)
    with filesystem.open_output_stream(f"{path}/{name}") as stream:
        stream.write(content)


def table(first: int, end: int, **columns: Any) -> bytes:
    """As Hugging Face writes pictures, in row groups of 7."""
    made = {
        "image": [{"bytes": each, "path": None} for each in PICTURES[first:end]],
        "label": pa.array(LABELS[first:end], pa.int8()),
    } | columns
    content = io.BytesIO()
    kept = {name: column for name, column in made.items() if column is not None}
    parquet.write_table(pa.table(kept), content, row_group_size=7)
    return content.getvalue()


def shard(members: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, of_name in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(of_name)
            tar.addfile(entry, io.BytesIO(of_name))
    return content.getvalue()


def samples(first: int, end: int) -> dict[str, bytes]:
    members: dict[str, bytes] = {}
    for number in range(first, end):
        members[f"./train/{number:04}.cls"] = f"{LABELS[number]}\n".encode()
        members[f"./train/{number:04}.PNG"] = PICTURES[number]
        members[f"./train/{number:04}.seg.json"] = b"{}" * 40_000
    return members


def written(place: str, data: str) -> str:
    """Two files of the format, and one of another kind."""
    make: Callable[[int, int], bytes] = (
        table if data == "parquet" else lambda first, end: shard(samples(first, end))
    )
    ending = "parquet" if data == "parquet" else "tar"
    put(place, f"part-1.{ending}", make(25, COUNT))
    put(place, f"part-0.{ending}", make(0, 25))
    put(place, "README.md", b"not of pictures")
    return place


@pytest.fixture
def place(s3: ObjectStore) -> str:
    return f"s3://bucket/{uuid.uuid4().hex}"


def of(data: str, path: str, **settings: Any) -> Data:
    return load(replace(ASKED, data=data, data_path=path, **settings))


@pytest.fixture
def expected(tmp_path: Path) -> Data:
    """The same pictures in the folders of imagenet, one class after the other."""
    folder = tmp_path / "imagenet"
    for part in ("train", "val"):
        for number in range(36):
            into = folder / part / str(LABELS[number])
            into.mkdir(parents=True, exist_ok=True)
            (into / f"{number:04}.png").write_bytes(PICTURES[number])
    return of("imagenet", str(folder))


def by_class(numbers: NDArray[np.int64]) -> list[int]:
    return sorted(numbers.tolist(), key=lambda number: (LABELS[number], number))


@pytest.mark.parametrize("data", FORMATS)
def test_pictures_of_a_folder_and_of_a_bucket_are_those_of_imagenet(
    data: str, tmp_path: Path, place: str, s3: ObjectStore, expected: Data
) -> None:
    images, labels = expected.train.batch(ALL, None)
    paths = written(str(tmp_path / "files"), data), written(place, data)
    s3.fail(Kind.SLOW_DOWN, "GET", "part-1", times=2)
    for path in paths:
        found = of(data, path)
        assert (len(found.train), len(found.held_out), found.classes) == (36, 4, 3)
        assert found.name == f"pictures of {path.rpartition('/')[2]}"
        own, own_labels = found.train.batch(np.array(by_class(ALL)), None)
        assert torch.equal(own, images)
        assert torch.equal(own_labels, labels)
        some = np.array([30, 3, 31])
        drawn = found.train.batch(some, Draws(1, 2))[0]
        assert torch.equal(drawn[1], found.train.batch(np.array([3]), Draws(1, 2))[0][0])
        assert not torch.equal(drawn, found.train.batch(some, Draws(1, 3))[0])
        whole = found.held_out.batch(np.arange(4), None)
        assert whole[1].tolist() == LABELS[36:]
        other = of(data, path, held_out_path=path)
        assert (len(other.train), len(other.held_out)) == (COUNT, COUNT)
    assert s3.failed() == 2


def test_a_picture_of_a_shard_is_one_request(place: str, s3: ObjectStore) -> None:
    found = of("webdataset", written(place, "webdataset"))
    s3.requests.clear()
    found.train.batch(np.array([5, 30, 6]), None)
    assert [item.method for item in s3.requests] == ["GET"] * 3


def test_a_row_group_is_read_once_and_the_last_ones_are_kept(
    place: str, s3: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = of("parquet", written(place, "parquet"))
    assert found.chunks == (7, 7, 7, 4, 7, 4)
    s3.requests.clear()
    for _ in range(2):
        found.train.batch(np.array([0, 5, 1]), None)
    assert len(s3.requests) == 1
    monkeypatch.setattr(rows, "IN_MEMORY_BYTES", 1)
    found.train.batch(np.array([8, 0]), None)
    found.train.batch(np.array([30]), None)
    assert len(s3.requests) == 3
    assert len(rows._kept) == 1


def test_an_epoch_reads_row_groups_together_and_covers_each_row_once() -> None:
    chunks = (300,) * 20 + (1,)
    ranks = [Sampler(6001, 16, rank, 2, seed=0, chunks=chunks) for rank in (0, 1)]
    shares = [[share.micro_batches[0] for share in rank.epoch(1)] for rank in ranks]
    steps = [np.concatenate(step) for step in zip(*shares, strict=True)]
    order = np.concatenate(steps)
    assert sorted(order) == list(range(6001))
    near = order[:MIXED]
    assert len(set((near // 300).tolist())) == 4, "of as few row groups as contain that many"
    assert sorted(near) != near.tolist()
    again = [share.micro_batches[0] for share in ranks[0].epoch(1, after=7)]
    assert all((one == other).all() for one, other in zip(again, shares[0][7:], strict=True))
    other_epoch = np.concatenate([share.micro_batches[0] for share in ranks[0].epoch(2)])
    assert other_epoch.tolist() != np.concatenate(shares[0]).tolist()


def test_a_validation_set_leaves_the_other_rows_of_each_row_group(tmp_path: Path) -> None:
    found = of("parquet", written(str(tmp_path / "p"), "parquet"), validation_share=0.25)
    assert sum(found.chunks) == len(found.train) == 27
    assert len(found.chunks) <= 6


def refused(data: str, path: str, message: str, **settings: Any) -> None:
    def used() -> None:
        found = of(data, path, **settings).train
        found.batch(np.arange(len(found)), None)

    with pytest.raises(NoData, match=message):
        used()


def test_parquet_that_cannot_be_used_is_reported_with_the_reason(tmp_path: Path) -> None:
    def bad(name: str, message: str, content: bytes, **settings: Any) -> None:
        path = str(tmp_path / name)
        put(path, "a.parquet", content)
        refused("parquet", path, message, **settings)

    no_label = table(0, 20, label=None, target=pa.array(range(20)))
    bad("c", r"a\.parquet has no column 'label'; its columns are image, target: set", no_label)
    bad("d", r"has no column 'jpg'; its columns are image, label", table(0, 9), image_column="jpg")
    assert len(of("parquet", str(tmp_path / "c"), label_column="target").train) == 18
    bad("e", "column 'image' is list<.*>; it has to be the bytes", table(0, 1, image=[[1, 2]]))
    bad("f", "column 'label' is string, not an integer", table(0, 1, label=["a"]))
    bad("g", "column 'label' has 1 null labels", table(0, 2, label=[1, None]))
    bad("h", "has the label -1: they start at 0", table(0, 2, label=[1, -1]))
    bad("i", r"a\.parquet cannot be read as Parquet: .*[Mm]agic bytes", b"x" * 100)
    bad("j", "has 9 pictures, too few to train and to evaluate", table(0, 9))
    broken = [*PICTURES[:8], b"no picture", *PICTURES[9:20]]
    bad(
        "k",
        r"a\.parquet: image in row 1 of row group 1 cannot be read as a picture: cannot identify",
        table(0, 20, image=broken, label=LABELS[:20]),
    )
    refused("parquet", "", "data=parquet needs data_path: a file or a directory, such as s3://")
    refused("parquet", str(tmp_path), "have 3 channels, and shape asks for 1", shape="1x8x8")


def test_shards_that_cannot_be_used_are_reported_with_the_reason(tmp_path: Path) -> None:
    def bad(name: str, message: str, content: bytes, **settings: Any) -> None:
        path = str(tmp_path / name)
        put(path, "a.tar", content)
        refused("webdataset", path, message, **settings)

    whole = samples(0, 20)
    no_label = {name: of for name, of in whole.items() if name != "./train/0003.cls"}
    bad(
        "c",
        r"a\.tar: sample \./train/0003 has no member cls; it has png, seg\.json",
        shard(no_label),
    )
    bad("d", "has no member jpg; it has cls, png", shard(whole), image_column="jpg")
    bad("e", r"its cls is 'cat', not a number from 0", shard(whole | {"./train/0001.cls": b"cat"}))
    bad("f", "cannot be read as an uncompressed tar file: ", b"\x1f\x8b" + b"x" * 2000)
    bad("g", "cannot be read as an uncompressed tar file: unexpected end", shard(whole)[:100_000])
    bad(
        "h",
        r"a\.tar: \./train/0002\.png cannot be read as a picture: cannot identify image file;",
        shard(whole | {"./train/0002.PNG": b"no picture"}),
    )


@pytest.mark.parametrize(("data", "ending"), [("parquet", ".parquet"), ("webdataset", ".tar")])
def test_an_empty_bucket_and_one_without_access_are_reported(
    data: str, ending: str, place: str, s3: ObjectStore
) -> None:
    refused(data, place, f"^{place} is not there: a ")
    refused(data, "s3://nowhere/x", "there is no bucket nowhere|is not there")
    put(place, "note.txt", b"text")
    refused(data, place, f"^{place} has no files of .*, whose names end with {ending}$")
    written(place, data)
    s3.fail(Kind.DENIED, "GET", "part-0", times=9)
    s3.fail(Kind.DENIED, "HEAD", "part-0", times=9)
    refused(data, place, "access denied; the workers need AWS_ACCESS_KEY_ID")


@pytest.mark.parametrize("data", FORMATS)
def test_a_run_learns_the_same_from_a_bucket_and_resumes_exactly(
    data: str, place: str, tmp_path: Path
) -> None:
    folder = written(str(tmp_path / "files"), data)
    results = []
    for name, path, ends in (("whole", folder, (6,)), ("parts", written(place, data), (3, 6))):
        with one() as world, FolderCheckpoints(tmp_path / name, 0, 1) as checkpoints:
            for end in ends:
                settings = Settings(
                    **vars(replace(ASKED, data=data, data_path=path)),
                    workers=1,
                    model="mlp",
                    max_steps=end,
                )
                result = loop.train(settings, world, checkpoints, replicated)
        results.append(result)
    assert results[0] == results[1]
