"""The data settings of a job."""

from __future__ import annotations

from dataclasses import dataclass

from training.settings import setting

SOURCES = (
    "digits",
    "cifar10",
    "cifar100",
    "imagenet",
    "parquet",
    "webdataset",
    "tokens",
    "synthetic",
    "synthetic-tokens",
)
INDEXED = ("parquet", "webdataset")
"""Those whose files are read by an index, which is made at the start."""


@dataclass(frozen=True)
class DataSettings:
    """Data"""

    data: str = setting("digits", "data set", SOURCES)
    data_path: str = setting(
        "",
        "directory of cifar or imagenet; file or directory of parquet, webdataset or tokens "
        "(s3:// too); shared by all ranks; empty: ~/data",
    )
    held_out_path: str = setting(
        "",
        "tokens, parquet, webdataset: file or directory for evaluation; empty: the last tenth of "
        "data_path",
    )
    image_column: str = setting(
        "", "column of the pictures; empty: image in parquet, jpg, jpeg, png or webp in webdataset"
    )
    label_column: str = setting(
        "", "column of the labels, from 0; empty: label in parquet, cls in webdataset"
    )
    validation_share: float = setting(
        0.0,
        "share of the training examples that becomes the validation set; the held-out examples "
        "are then a test set, evaluated once at the end; 0: no test set",
        at_least=0.0,
        at_most=0.9,
    )
    split_seed: int = setting(0, "seed of the choice of the validation set", at_least=0)
    download: bool = setting(False, "cifar: download it if it is not at data_path")
    shape: str = setting(
        "3x224x224", "synthetic and pictures: shape of an example: channels x height x width"
    )
    examples: int = setting(10_240, "synthetic, synthetic-tokens: examples in an epoch")
    classes: int = setting(1000, "synthetic: number of classes")
    vocabulary: int = setting(
        256, "tokens, synthetic-tokens: size of the vocabulary: 256 for bytes, 50257 for GPT-2"
    )
    token_type: str = setting(
        "auto",
        "type of a token in the file; auto: uint16 if the vocabulary fits",
        ("auto", "uint16", "uint32"),
    )
    sequence_length: int = setting(128, "number of tokens in an example", at_least=1)
    batch_size: int = setting(16, "examples in a micro-batch of a rank, with all workers")
    loader_workers: int = setting(
        0, "loader processes for each rank; 0, and with s3://: the rank itself loads"
    )
    prefetch: int = setting(2, "batches that each loader process prefetches", at_least=1)
    pin_memory: bool = setting(True, "with a GPU: load into pinned memory")
    persistent_workers: bool = setting(True, "keep the loader processes between epochs")
