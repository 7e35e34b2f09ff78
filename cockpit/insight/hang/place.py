"""Classify where a thread is, by the files and functions of its stack."""

from __future__ import annotations

import re
from enum import StrEnum

from cockpit.model.hang import Stack


class Place(StrEnum):
    COLLECTIVE = "collective"
    REPORT = "report"
    """`ray.train.report`, which waits for all ranks."""
    DATA = "data loader"
    STORAGE = "storage"
    EVALUATION = "evaluation"
    CHILD = "child process"
    RAY = "Ray"
    """`ray.get` and `ray.wait`."""
    LOCK = "lock"
    FINISHED = "finished"
    """The training function has returned."""
    SWAPPED = "swapped out"
    """Its process waits for the kernel to read its memory back from a disk."""
    USER = "user code"


SLOW = frozenset({Place.DATA, Place.STORAGE, Place.EVALUATION, Place.CHILD, Place.SWAPPED})
"""Places where a rank may take long without a hang."""

_LIBRARIES = (
    (re.compile(r"\(ray/_private/workers/default_worker\.py:"), Place.FINISHED),
    (
        re.compile(
            r"\(torch/serialization\.py|\(torch/distributed/checkpoint/|\((pyarrow|fsspec|s3fs|"
            r"gcsfs|adlfs|boto3|botocore|s3transfer|safetensors|h5py)/|\((shutil|pathlib|gzip|tarfile|"
            r"zipfile|_pyio)\.py|"
            r"\(ray/train/.*(storage|checkpoint_manager)"
        ),
        Place.STORAGE,
    ),
    (re.compile(r"\((torch/utils/data|ray/data|datasets|webdataset|streaming)/"), Place.DATA),
    (re.compile(r"^report \(ray/(train|air|tune)/|\(ray/train/.*sync_actor"), Place.REPORT),
    (re.compile(r"\(torch/distributed/"), Place.COLLECTIVE),
    (re.compile(r"\((subprocess|multiprocessing/popen_\w+)\.py"), Place.CHILD),
    (re.compile(r"^(get|wait|get_objects) \(ray/_private/"), Place.RAY),
)
_LOADER = re.compile(r"\(torch/utils/data/")
"""Around the user's own dataset too."""
_FUNCTIONS = (
    (re.compile(r"checkpoint|(^|_)(save|load|restore|upload|download)(_|$)", re.I), Place.STORAGE),
    (re.compile(r"(^|_)(evaluat\w*|eval|valid\w*|test)(_|$)", re.I), Place.EVALUATION),
)
_CALLS = (
    (
        re.compile(r"^(io\.)?open$|^os\.|fsync$|\.(write|read|readinto|flush|readline)$"),
        Place.STORAGE,
    ),
    (re.compile(r"^with |\.(acquire|wait|join)$|\bflock$|\.lockf$"), Place.LOCK),
)
_LOCKS = re.compile(r"\((threading|queue|concurrent/futures/\w+|asyncio/\w+|filelock/\w+)\.py:")


def place(stack: Stack) -> Place:
    """The library that the user's code called counts, then its own call, then its functions."""
    outermost = stack.user if stack.user >= 0 else len(stack.frames)
    called = stack.frames[:outermost]
    for pattern, found in _LIBRARIES:
        if any(map(pattern.search, called)):
            return found
    if any(map(_LOADER.search, stack.frames)):
        return Place.DATA
    if any(map(_LOCKS.search, called)):
        return Place.LOCK
    if not called:
        for pattern, found in _CALLS:
            if pattern.search(stack.call):
                return found
    for frame in stack.frames[outermost:]:
        function = frame.partition(" (")[0]
        for pattern, found in _FUNCTIONS:
            if pattern.search(function):
                return found
    return Place.USER
