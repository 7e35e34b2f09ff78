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
from training.data.token_files import TokenFiles, token_files

HELD_OUT = 10
"""The share of tokens that are held out, if there is no other file for evaluation."""
HELD_OUT_AT_MOST = 1 << 20
CHUNK = 1 << 22
"""The number of bytes of a text that are read at a time."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Sequences that follow each other in files."""

    files: TokenFiles
    first: int
    """The position of the first token in the files."""
    count: int
    """The number of tokens from there."""
    length: int
    """The length of a sequence; the target of its last token is the token after it."""
    vocabulary: int

    def __len__(self) -> int:
        return max(0, self.count - 1) // self.length

    def batch(self, examples: NDArray[np.int64], draws: Draws | None) -> Batch:
        """Raises NoData if a token is not in the vocabulary, or cannot be read."""
        begins = self.first + examples * self.length
        sequences = [self.files.read(int(begin), self.length + 1) for begin in begins]
        text = np.stack(sequences).astype(np.int64) if sequences else np.empty((0, 2), np.int64)
        if text.size and text.max() >= self.vocabulary:
            place, token = self._first_wrong()
            raise NoData(
                f"{self.files.shown}: the token at {place} is {token}, and there are "
                f"{self.vocabulary}: vocabulary or token_type is not what the file was written with"
            )
        pairs = torch.from_numpy(text)
        return pairs[:, :-1].contiguous(), pairs[:, 1:].contiguous()

    def _first_wrong(self) -> tuple[int, int]:
        """The position in the files, and the token."""
        for begin, text in self.files.chunks():
            wrong = np.flatnonzero(text >= self.vocabulary)
            if len(wrong):
                return begin + int(wrong[0]), int(text[wrong[0]])
        raise RuntimeError(f"{self.files.shown} was changed while it was read")


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
    files = held_out_files = token_files(settings.data_path, type)
    train_count = len(files)
    if settings.held_out_path:
        held_out_files = token_files(settings.held_out_path, type)
        first, held_out_count = 0, len(held_out_files)
    else:
        held_out_count = min(train_count // HELD_OUT, HELD_OUT_AT_MOST)
        train_count -= held_out_count
        first = train_count
    length, vocabulary = settings.sequence_length, settings.vocabulary
    train = Tokens(files, 0, train_count, length, vocabulary)
    held_out = Tokens(held_out_files, first, held_out_count, length, vocabulary)
    for part, what in ((train, "to train on"), (held_out, "held out")):
        if not len(part):
            raise NoData(
                f"{part.files.shown} has {part.count} tokens {what}, too few for a sequence of "
                f"{length}: take a longer file, or a shorter sequence_length"
            )
    return Data(
        name=f"tokens of {files.shown.rstrip('/').rpartition('/')[2]}",
        train=train,
        held_out=held_out,
        shape=(length,),
        classes=vocabulary,
    )


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
