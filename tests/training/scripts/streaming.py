"""Write what Ray Data streams to two ranks into a file: `streaming.py FILE`, on a cluster."""

from __future__ import annotations

import sys
from functools import partial

import ray
import torch

from training.data.examples import Batch, Examples, NoData
from training.data.sampler import Sampler
from training.data.settings import DataSettings
from training.data.streamed import Streamed, StreamSettings, train_examples

SETTINGS = StreamSettings(batch_size=15, block_mb=0.1)
"""Of 0.1 MB and 264 bytes an example: blocks of 26 micro-batches, the last of an epoch smaller."""


def dealt(rank: int) -> Sampler:
    return Sampler(1437, SETTINGS.batch_size, rank, 2, seed=0, accumulate=2)


def taken(batches: Streamed, epoch: int, after: int = 0) -> list[list[Batch]]:
    return [list(step.micro_batches) for step in batches.epoch(epoch, after)]


def lost() -> Examples:
    raise NoData("the pictures are gone")


def found_once() -> Examples:
    """Here in the rank's process, and no longer in the tasks."""
    return train_examples(DataSettings()) if "streaming" in sys.argv[0] else lost()


def main() -> None:
    ray.init()
    streams = [
        Streamed(partial(train_examples, DataSettings()), dealt(rank), SETTINGS, epochs=3)
        for rank in (0, 1)
    ]
    found = {
        "two epochs": [[taken(stream, epoch) for epoch in (0, 1)] for stream in streams],
        "resumed": [taken(stream, 1, after=20) for stream in streams],
    }
    try:
        taken(Streamed(found_once, dealt(0), SETTINGS, epochs=1), 0)
    except NoData as why:
        found["no data"] = str(why)
    torch.save(found, sys.argv[1])


if __name__ == "__main__":
    main()
