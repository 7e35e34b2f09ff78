"""Decompress HTTP response bodies in bounded pieces, and count their size.

httpx decompresses each received piece at once: 64 KiB of gzip can become 64 MiB, and all of it
stays in memory. Source: httpx 0.28, `_decoders.py`.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from typing import Protocol

ACCEPT_ENCODING = "gzip"
"""The accepted encodings: besides this one, only deflate is decoded here."""
PIECE_BYTES = 1 << 18
ERROR_BYTES = 1 << 18
"""How much is read of an answer that is an error; the rest is left."""


class Headers(Protocol):
    def get(self, key: str, default: str, /) -> str: ...


class Response(Protocol):
    """A response of httpx or of `cockpit.sources.http.client`."""

    @property
    def is_stream_consumed(self) -> bool: ...
    @property
    def content(self) -> bytes: ...
    @property
    def status_code(self) -> int: ...
    @property
    def is_success(self) -> bool: ...
    @property
    def headers(self) -> Headers: ...
    def aiter_raw(self) -> AsyncIterator[bytes]: ...


class AnswerTooLargeError(ValueError):
    """A body with more bytes, after decompression, than were allowed. One line."""


class EncodingError(ValueError):
    """A body that is not in the encoding that its header names. One line."""


async def pieces(response: Response) -> AsyncGenerator[bytes, None]:
    """The decompressed body of an answer opened with `stream`, at most PIECE_BYTES at a time.

    Raises EncodingError, and httpx's errors.
    """
    if response.is_stream_consumed:  # a complete body, as from httpx.MockTransport
        yield response.content
        return
    decode = _decoder(response.headers.get("content-encoding", ""))
    async for chunk in response.aiter_raw():
        for piece in decode(chunk):
            yield piece


async def body(response: Response, limit_bytes: int) -> bytes:
    """Return the decompressed body. Raises AnswerTooLargeError beyond the limit, EncodingError."""
    whole = bytearray()
    async with aclosing(pieces(response)) as read:
        async for piece in read:
            whole += piece
            if len(whole) > limit_bytes:
                raise AnswerTooLargeError(f"it has more than {limit_bytes / (1 << 20):g} MiB")
    return bytes(whole)


async def beginning(response: Response, limit_bytes: int = ERROR_BYTES) -> bytes:
    """The body of an error, up to the limit. Raises EncodingError."""
    whole = bytearray()
    async with aclosing(pieces(response)) as read:
        async for piece in read:
            whole += piece
            if len(whole) >= limit_bytes:
                break
    return bytes(whole[:limit_bytes])


class _Plain:
    def __call__(self, chunk: bytes) -> Iterator[bytes]:
        yield chunk


class _Inflated:
    def __init__(self, window_bits: int) -> None:
        self._stream = zlib.decompressobj(window_bits)

    def __call__(self, chunk: bytes) -> Iterator[bytes]:
        while chunk and not self._stream.eof:
            try:
                piece = self._stream.decompress(chunk, PIECE_BYTES)
            except zlib.error as error:
                raise EncodingError(f"its compression is not valid ({error})") from error
            chunk = self._stream.unconsumed_tail
            if piece:
                yield piece


def _decoder(encoding: str) -> _Plain | _Inflated:
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return _Plain()
    if name in ("gzip", "x-gzip", "deflate"):
        # 32: zlib looks at the header itself, which of both it is.
        return _Inflated(32 + zlib.MAX_WBITS)
    raise EncodingError(f"it is compressed with {name[:40]!r}, which was not asked for")
