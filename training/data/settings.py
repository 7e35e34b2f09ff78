"""What a job asks of its data."""

from __future__ import annotations

from dataclasses import dataclass

from training.settings import setting

SOURCES = ("digits", "cifar10", "cifar100", "imagenet", "tokens", "synthetic", "synthetic-tokens")


@dataclass(frozen=True)
class DataSettings:
    """Data"""

    data: str = setting("digits", "what is learnt from", SOURCES)
    data_path: str = setting(
        "", "folder of cifar or imagenet, file of tokens, seen by all ranks; '': ~/data"
    )
    held_out_path: str = setting("", "tokens: file to evaluate on; '': the last tenth of data_path")
    download: bool = setting(False, "cifar: fetch it when it is not at data_path yet")
    shape: str = setting(
        "3x224x224", "synthetic, imagenet: of an example: channels x height x width"
    )
    examples: int = setting(10_240, "synthetic, synthetic-tokens: how many in an epoch")
    classes: int = setting(1000, "synthetic: how many")
    vocabulary: int = setting(
        256, "tokens, synthetic-tokens: how many there are: 256 for bytes, 50257 for GPT-2"
    )
    token_type: str = setting(
        "auto", "of a token in its file; auto: uint16 when it can be", ("auto", "uint16", "uint32")
    )
    sequence_length: int = setting(128, "tokens of an example", at_least=1)
    batch_size: int = setting(16, "examples a micro-batch and rank, when all workers are there")
    loader_workers: int = setting(0, "processes that load data, a rank; 0: the rank itself")
    prefetch: int = setting(2, "batches that each of them has ready", at_least=1)
    pin_memory: bool = setting(True, "with a GPU: load into memory that it copies from at once")
    persistent_workers: bool = setting(True, "keep those processes from one epoch to the next")
