"""Files of tokens, a sequence of uint16 or uint32 values: nanoGPT's `.bin`.

    python -m training.data.tokens TEXT -o FILE

creates one from the bytes of a text, for use without a tokenizer.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from training.data.example_random import Draws
from training.data.examples import Batch, Data, NoData
from training.data.settings import DataSettings

HELD_OUT = 10
"""The share of tokens that are held out, if there is no other file for evaluation."""
HELD_OUT_AT_MOST = 1 << 20
LOOKED_AT = 1 << 12
"""The number of tokens that are checked for values that suggest another type."""
CHUNK = 1 << 22
"""The number of tokens, or bytes of a text, that are read at a time."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Sequences that follow each other in a file."""

    file: Path
    type: str
    first: int
    """The position of the first token in the file."""
    count: int
    """The number of tokens from there."""
    length: int
    """The length of a sequence; the target of its last token is the token after it."""
    vocabulary: int

    def __len__(self) -> int:
        return max(0, self.count - 1) // self.length

    def batch(self, examples: NDArray[np.int64], draws: Draws | None) -> Batch:
        """Raises NoData if a token is not in the vocabulary."""
        begins = self.first + examples * self.length
        places = begins[:, None] + np.arange(self.length + 1)
        # Map the file again for each batch: a mapping keeps the pages that were read in memory.
        text = np.memmap(self.file, dtype=self.type, mode="r")[places].astype(np.int64)
        if text.size and text.max() >= self.vocabulary:
            place, token = self._first_wrong()
            raise NoData(
                f"{self.file}: the token at {place} is {token}, and there are {self.vocabulary}: "
                "vocabulary or token_type is not what the file was written with"
            )
        pairs = torch.from_numpy(text)
        return pairs[:, :-1].contiguous(), pairs[:, 1:].contiguous()

    def _first_wrong(self) -> tuple[int, int]:
        """The number of tokens in the file."""
        text = np.memmap(self.file, dtype=self.type, mode="r")
        for begin in range(0, len(text), CHUNK):
            wrong = np.flatnonzero(text[begin : begin + CHUNK] >= self.vocabulary)
            if len(wrong):
                return begin + int(wrong[0]), int(text[begin + wrong[0]])
        raise RuntimeError(f"{self.file} was changed while it was read")


def load(settings: DataSettings) -> Data:
    """Raises NoData if a file is missing, or cannot contain such tokens."""
    if not settings.data_path:
        raise NoData(
            "data=tokens needs data_path: a file of tokens; from a text: "
            "python -m training.data.tokens TEXT -o FILE"
        )
    type = settings.token_type
    if type == "auto":
        type = "uint16" if settings.vocabulary <= 1 << 16 else "uint32"
    file = Path(settings.data_path).expanduser()
    train_count, held_out_file = tokens_in(file, type), file
    if settings.held_out_path:
        held_out_file = Path(settings.held_out_path).expanduser()
        first, held_out_count = 0, tokens_in(held_out_file, type)
    else:
        held_out_count = min(train_count // HELD_OUT, HELD_OUT_AT_MOST)
        train_count -= held_out_count
        first = train_count
    length, vocabulary = settings.sequence_length, settings.vocabulary
    train = Tokens(file, type, 0, train_count, length, vocabulary)
    held_out = Tokens(held_out_file, type, first, held_out_count, length, vocabulary)
    for part, what in ((train, "to train on"), (held_out, "held out")):
        if not len(part):
            raise NoData(
                f"{part.file} has {part.count} tokens {what}, too few for a sequence of {length}: "
                "take a longer file, or a shorter sequence_length"
            )
    return Data(
        name=f"tokens of {file.name}",
        train=train,
        held_out=held_out,
        shape=(length,),
        classes=vocabulary,
    )


def tokens_in(file: Path, type: str) -> int:
    """The number of tokens. Raises NoData if it is not a file of tokens."""
    if not file.is_file():
        raise NoData(
            f"{file.absolute()} is not there: a file of {type} tokens, seen by all ranks; "
            f"from a text: python -m training.data.tokens TEXT -o {file}"
        )
    size, each = file.stat().st_size, np.dtype(type).itemsize
    if size % each:
        raise NoData(
            f"{file} has {size} bytes, which is no whole number of {type}: it was cut off on its "
            "way here, or is not a file of tokens"
        )
    some = np.fromfile(file, dtype=type, count=LOOKED_AT)
    if type == "uint16" and len(some) > 1 and some[::2].any() and not some[1::2].any():
        raise NoData(f"{file} holds uint32, not uint16, by its look: set token_type=uint32")
    return size // each


def write(text: Path, file: Path) -> int:
    """Write the bytes of a text as tokens, atomically; returns their number."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}")
    written = 0
    try:
        with text.open("rb") as read, part.open("wb") as out:
            while chunk := read.read(CHUNK):
                out.write(np.frombuffer(chunk, dtype=np.uint8).astype(np.uint16).tobytes())
                written += len(chunk)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
    return written


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m training.data.tokens", description="The bytes of a text as a file of tokens."
    )
    parser.add_argument("text", type=Path, help="a file of any encoding")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
    asked = parser.parse_args()
    try:
        written = write(asked.text, asked.output)
    except OSError as error:
        raise SystemExit(f"{error.filename or asked.output}: {error.strerror}") from error
    print(f"{written:,} tokens: --data tokens --data-path {asked.output} --vocabulary 256")


if __name__ == "__main__":
    main()
