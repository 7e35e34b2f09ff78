"""A stream of bytes as lines of bounded length."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator


async def split_lines(
    chunks: AsyncIterator[bytes], *, limit_bytes: int, torn: bool
) -> AsyncGenerator[list[bytes], None]:
    """The lines that each chunk completes, without their newline; never an empty list.

    What is over `limit_bytes` of a line is dropped: however long a line is, at most the limit and
    one chunk are held. `torn`: whether bytes after the last newline are a line too.
    """
    held = bytearray()
    async for chunk in chunks:
        *whole, rest = chunk.split(b"\n")
        if whole:
            held += whole[0][: limit_bytes - len(held)]
            yield [bytes(held), *(line[:limit_bytes] for line in whole[1:])]
            held.clear()
        held += rest[: limit_bytes - len(held)]
    if torn and held:
        yield [bytes(held)]
