"""Tokens in several files, in a folder and in a bucket: the same sequences as in one file."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.training.object_store import Kind, ObjectStore
from tests.training.runs import one
from training.checkpoint.filesystem import located
from training.checkpoint.in_folder import FolderCheckpoints
from training.data import load
from training.data.examples import NoData
from training.data.loader import Loader
from training.data.settings import DataSettings
from training.data.token_files import token_files
from training.jobs.checkpointed import Settings
from training.loop import train as loop
from training.loop.train import sampler
from training.parallel.replicated import replicated

TOKENS = np.random.default_rng(0).integers(0, 50, 1000).astype(np.uint16)
CUTS = (7, 8, 400)
"""One of the files has a single token."""
ASKED = DataSettings(data="tokens", sequence_length=16, vocabulary=50, batch_size=4)


def shards(place: str) -> str:
    """Write the tokens as files of a directory, or of a bucket; returns its path."""
    filesystem, path = located(place)
    filesystem.create_dir(path)
    for number, part in enumerate(np.split(TOKENS, CUTS)):
        with filesystem.open_output_stream(f"{path}/part-{number:03}.bin") as stream:
            stream.write(part.tobytes())
    with filesystem.open_output_stream(f"{path}/_SUCCESS.txt") as stream:
        stream.write(b"not of tokens")
    return place


@pytest.fixture
def place(s3: ObjectStore) -> str:
    return f"s3://bucket/{uuid.uuid4().hex}"


def test_files_of_a_directory_are_one_sequence_of_tokens(
    tmp_path: Path, place: str, s3: ObjectStore
) -> None:
    whole = tmp_path / "whole.bin"
    TOKENS.tofile(whole)
    expected = load(replace(ASKED, data_path=str(whole)))
    folder, bucket = shards(str(tmp_path / "parts")), shards(place)
    s3.fail(Kind.SLOW_DOWN, "GET", "part-003.bin", times=2)
    for path in (folder, bucket, f"{bucket}/part-003.bin"):
        found = load(replace(ASKED, data_path=path))
        if path.endswith(".bin"):
            assert len(found.train) == (540 - 1) // 16
            continue
        assert found.name == f"tokens of {path.rpartition('/')[2]}"
        for own, other in ((found.train, expected.train), (found.held_out, expected.held_out)):
            every = np.arange(len(other))
            assert len(own) == len(other)
            for ours, theirs in zip(own.batch(every, None), other.batch(every, None), strict=True):
                assert torch.equal(ours, theirs)
    assert s3.failed() == 2


def test_a_token_out_of_the_vocabulary_is_found_across_files(tmp_path: Path) -> None:
    data = load(replace(ASKED, data_path=shards(str(tmp_path / "p")), vocabulary=int(TOKENS[405])))
    with pytest.raises(NoData, match=r"p: the token at \d+ is \d+, and there are"):
        data.train.batch(np.arange(len(data.train)), None)


def test_unreadable_token_file_is_reported_with_the_reason(place: str, s3: ObjectStore) -> None:
    with pytest.raises(NoData, match=f"^{place} is not there: a file of uint16 tokens"):
        token_files(place, "uint16")
    filesystem, path = located(place)
    with filesystem.open_output_stream(f"{path}/note.txt") as stream:
        stream.write(b"text")
    with pytest.raises(NoData, match="has no files of tokens, whose names end with"):
        token_files(place, "uint16")
    with filesystem.open_output_stream(f"{path}/a.bin") as stream:
        stream.write(b"abc")
    with pytest.raises(NoData, match=f"{place}/a.bin has 3 bytes, which is no whole number"):
        token_files(place, "uint16")
    s3.fail(Kind.DENIED, times=9)
    with pytest.raises(NoData, match=f"{place}: access denied; the workers need"):
        token_files(place, "uint16")


def test_a_rank_reads_a_bucket_without_forked_processes(place: str) -> None:
    settings = Settings(**vars(replace(ASKED, data_path=shards(place), loader_workers=2)))
    with one() as world:
        data = load(settings)
        loader = Loader(data.train, sampler(settings, world, len(data.train)), settings)
    assert loader._loader.num_workers == 0


def test_a_run_learns_the_same_from_a_bucket(place: str, tmp_path: Path) -> None:
    whole = tmp_path / "whole.bin"
    TOKENS.tofile(whole)
    results = []
    for number, path in enumerate((str(whole), shards(place))):
        settings = Settings(
            **vars(replace(ASKED, data_path=path)), workers=1, model="gpt-tiny", max_steps=3
        )
        with one() as world, FolderCheckpoints(tmp_path / str(number), 0, 1) as checkpoints:
            results.append(loop.train(settings, world, checkpoints, replicated))
    assert results[0] == results[1]
