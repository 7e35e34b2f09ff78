"""The data sets of the jobs: examples by number, distributed to the ranks by step."""

from __future__ import annotations

from pathlib import Path

from training.data import digits, synthetic
from training.data.examples import Data, NoData, with_validation
from training.data.settings import DataSettings


def load(settings: DataSettings) -> Data:
    """Raises NoData if it is missing or incomplete."""
    data = _whole(settings)
    if not settings.validation_share:
        return data
    return with_validation(data, settings.validation_share, settings.split_seed)


def _whole(settings: DataSettings) -> Data:
    folder = Path(settings.data_path or "~/data").expanduser()
    match settings.data:
        case "digits":
            return digits.load()
        case "synthetic":
            return synthetic.images(shape(settings), settings.classes, settings.examples)
        case "synthetic-tokens":
            return synthetic.tokens(
                settings.sequence_length, settings.vocabulary, settings.examples
            )
        case "tokens":
            from training.data import tokens

            return tokens.load(settings)
        case "imagenet":
            from training.data import imagenet

            return imagenet.load(folder, shape(settings))
        case "parquet":
            from training.data.pictures import labelled, parquet

            columns = settings.image_column, settings.label_column
            return labelled.load(
                settings, shape(settings), lambda path: parquet.rows(path, *columns)
            )
        case "webdataset":
            from training.data.pictures import labelled, webdataset

            columns = settings.image_column, settings.label_column
            return labelled.load(
                settings, shape(settings), lambda path: webdataset.members(path, *columns)
            )
    from training.data import cifar

    return cifar.load(settings.data, folder, download=settings.download)


def shape(settings: DataSettings) -> tuple[int, int, int]:
    """Channels, height and width."""
    sides = settings.shape.split("x")
    if len(sides) != 3 or not all(side.isdecimal() and int(side) for side in sides):
        raise NoData(
            f"shape is {settings.shape!r}: give channels x height x width, as in 3x224x224"
        )
    channels, height, width = map(int, sides)
    return channels, height, width
