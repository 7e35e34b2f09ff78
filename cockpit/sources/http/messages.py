"""Messages of HTTP/1.1: a request as bytes, and a response from the bytes of its connection.

httptools parses the responses (llhttp, the parser of Node.js). Its import takes 2 ms, that of h11
13 ms, in each verb that asks a cluster (AMD EPYC, Python 3.11).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from msgspec import Struct

HEAD_BYTES = 100 << 10
"""The largest head of a response, as in httpcore; also what may be between two parts of a body."""
_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"(?:[!-~](?:[ \t!-~]*[!-~])?)?")
_TARGET = re.compile(r"[!-~]+")


class Head(Struct, frozen=True):
    status_code: int
    headers: dict[str, str]
    """By their names in lower case."""


def request(method: str, target: str, fields: Mapping[str, str], content: bytes | None) -> bytes:
    """Return the bytes of a request. Raises ValueError, which quotes nothing of it: a header may
    be a token.
    """
    if not (_NAME.fullmatch(method) and _TARGET.fullmatch(target)):
        raise ValueError("the method or the path of the request cannot be sent")
    lines = [f"{method} {target} HTTP/1.1"]
    for name, value in fields.items():
        if not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
            raise ValueError("a header of the request cannot be sent")
        lines.append(f"{name}: {value}")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + (content or b"")


class ResponseParser:
    """One response, but not to HEAD, whose length is that of a body which does not follow.

    Informational ones before it (102, 103) are skipped.
    """

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._incomplete_bytes = 0
        """Received since the newest part was complete."""
        self._ends_with_connection = False
        self.head: Head | None = None
        self.body: deque[bytes] = deque()
        """What was received of it and not yet taken, without its framing."""
        self.is_complete = False
        """Whether all of it was received."""
        self.is_last = True
        """Whether the server closes the connection after it, or sent something that nothing asked
        for.
        """

    def feed(self, received: bytes) -> None:
        """Add what the connection has received; nothing means its end.

        Raises ConnectionError for what HTTP does not allow.
        """
        if not received:
            self._end()
            return
        self._incomplete_bytes += len(received)
        try:
            self._parser.feed_data(received)
        except HttpParserUpgrade as error:
            raise ConnectionError("the server changed the protocol of the connection") from error
        except HttpParserError as error:
            if not self.is_complete:
                raise ConnectionError(f"the response is not valid HTTP: {error}") from error
            self.is_last = True
        if self._incomplete_bytes > HEAD_BYTES and not self.is_complete:
            raise ConnectionError(f"the response has a head of more than {HEAD_BYTES >> 10} KiB")

    def _end(self) -> None:
        if self.head is None:
            raise ConnectionError("the server closed the connection without a response")
        if not self._ends_with_connection:
            raise ConnectionError("the server closed the connection within a response")
        self.is_complete = True

    # -- called by the parser

    def on_message_begin(self) -> None:
        if self.is_complete:  # another one follows
            self.is_last = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head is None:  # not those after a body in chunks
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        headers, self._headers = self._headers, {}
        status = self._parser.get_status_code()
        if self.head is not None or status < 200:
            return
        self.head, self._incomplete_bytes = Head(status, headers), 0
        self._ends_with_connection = not headers.keys() & {"content-length", "transfer-encoding"}
        self.is_last = not self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        if not self.is_complete:
            self._incomplete_bytes = 0
            self.body.append(body)

    def on_message_complete(self) -> None:
        self.is_complete = self.head is not None
