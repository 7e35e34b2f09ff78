"""Drills of the storage, when the checkpoints of the run are in a bucket."""

from __future__ import annotations

import pytest

from cockpit.drills.faults.fault import Victims
from cockpit.drills.faults.storage import _place
from cockpit.drills.plan.target import run_directory
from cockpit.model.error import CockpitError


@pytest.mark.parametrize(
    ("path", "directory"),
    [
        ("s3://bucket/runs/digits/checkpoint_1", "s3://bucket/runs/digits"),
        ("/shared/runs/digits/checkpoint_1", "/shared/runs/digits"),
        ("", ""),
    ],
)
def test_the_directory_of_a_run_keeps_its_scheme(path: str, directory: str) -> None:
    assert run_directory(path) == directory


@pytest.mark.parametrize("path", ["s3://bucket/runs/digits/checkpoint_1", "s3://bucket/runs"])
def test_a_bucket_is_refused_with_the_reason(path: str) -> None:
    with pytest.raises(CockpitError) as raised:
        _place(Victims(pods=(), run_id="r1"), path, "checkpoint")
    assert raised.value.what == f"{path} is not a directory."
    assert raised.value.why == "Only a file system that pods mount can be made to fail."
