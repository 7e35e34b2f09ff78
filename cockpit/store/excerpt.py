"""The lines of a log around an end, kept compressed."""

from __future__ import annotations

import zlib

from msgspec import Struct

from cockpit.model.event import LogExcerpted


class Excerpt(Struct, frozen=True):
    """A run of days has hundreds of them, and each is rarely read: a fifth of the memory."""

    log: str
    """As in `LogExcerpted`."""
    rank: int | None
    packed: bytes

    @classmethod
    def of(cls, event: LogExcerpted) -> Excerpt:
        text = "\n".join(event.lines).encode(errors="surrogatepass")
        return cls(event.log, event.rank, zlib.compress(text))

    @property
    def lines(self) -> tuple[str, ...]:
        """Those of the event: each is one line."""
        text = zlib.decompress(self.packed).decode(errors="surrogatepass")
        return tuple(text.split("\n")) if text else ()
