"""HTTP to a server of the configuration: bounded answers, and every failure as one of our errors.

httpx and TLS are loaded with the first question.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from cockpit.format import in_seconds
from cockpit.model.decoding.limited_json import LimitError, loads
from cockpit.model.error import CockpitError, NotAllowedError, UnreachableError, reason_of
from cockpit.model.secret import without_credentials
from cockpit.model.text import one_line
from cockpit.sources.http import bounded_body
from cockpit.sources.ray.http import AnswerError
from cockpit.sources.server_settings import ServerSettings, is_loopback

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT_S = 5.0
MISUNDERSTOOD = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""Errors when parsing an unexpected response."""


class ServerKind(Struct, frozen=True):
    """A kind of server, as its errors name it and what to do about them."""

    name: str
    """`MLflow`."""
    noun: str
    """`an MLflow tracking server`."""
    reach: str
    """What to do when it cannot be reached."""
    credentials: str
    """When it wants credentials."""
    refused: tuple[str, str]
    """What it did with status 403, and what to do."""
    narrow: str
    """When an answer is too large."""
    timeout_s: float
    limit_bytes: int


class JsonServer:
    """Bound to the event loop of the first request. `limit_bytes`: of an answer.

    Its methods raise UnreachableError, NotAllowedError and AnswerError.
    """

    def __init__(
        self,
        kind: ServerKind,
        settings: ServerSettings,
        *,
        timeout_s: float | None = None,
        limit_bytes: int | None = None,
    ) -> None:
        self._kind, self._settings = kind, settings
        self._timeout_s = timeout_s or kind.timeout_s
        self._limit_bytes = limit_bytes or kind.limit_bytes
        self._client: httpx.AsyncClient | None = None

    @property
    def where(self) -> str:
        """The address to show: without user and password."""
        return f"{self._kind.name} at {self._settings.url}"

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def ask(self, method: str, path: str, name: str = "", **sent: Any) -> Mapping[str, Any]:
        """The decoded answer, an object. `name`: of the question, for errors."""
        answer = await self.send(method, path, name, **sent)
        try:
            decoded = loads(answer, max_bytes=self._limit_bytes)
        except LimitError as error:
            raise self.strange(str(error)) from error
        except ValueError as error:
            raise self.strange(answer[:200].decode(errors="replace") or "it is empty") from error
        if not isinstance(decoded, dict):
            raise self.strange(f"a {type(decoded).__name__}")
        return decoded

    async def send(self, method: str, path: str, name: str = "", **sent: Any) -> bytes:
        """The body of the answer. `sent`: as for `httpx.AsyncClient.stream`."""
        on = f" on {name}" if name else ""
        with self._explained(on):
            # httpx's timeouts apply between two bytes: a slow response would never time out.
            async with (
                asyncio.timeout(self._timeout_s),
                self._open().stream(method, self._settings.url + path, **sent) as response,
            ):
                if response.is_success:
                    return await bounded_body.body(response, self._limit_bytes)
                answer = await bounded_body.beginning(response)
        if response.status_code < 400:
            # It is not followed: headers with a key would be forwarded.
            elsewhere = response.headers.get("Location", "nowhere").partition("?")[0]
            raise AnswerError(
                f"{self.where} sends elsewhere",
                one_line(f"HTTP {response.status_code}, to {elsewhere}"),
                "set the address that it redirects to; a login page requires a token",
                status=response.status_code,
            )
        raise self.refused(on, response.status_code, answer, response.headers)

    def tls(self) -> ssl.SSLContext | None:
        """The context for other requests to the same server; None without https."""
        found = self._trusted()
        return found if isinstance(found, ssl.SSLContext) else None

    def strange(self, why: str) -> AnswerError:
        """For an answer that is not of such a server."""
        return AnswerError(
            f"{self.where} did not answer as {self._kind.noun} does",
            self.plain(why),
            f"check that the address is {self._kind.name}'s, not a page to log in",
            status=200,
        )

    @contextmanager
    def understood(self) -> Iterator[None]:
        """Parse an answer; anything unexpected means that it is not of such a server."""
        try:
            yield
        except MISUNDERSTOOD as error:
            raise self.strange(f"{type(error).__name__}: {error}") from error

    def _open(self) -> httpx.AsyncClient:
        import httpx

        if self._client is None:
            settings = self._settings
            headers = {"Accept-Encoding": bounded_body.ACCEPT_ENCODING, **settings.headers}
            if settings.token:
                headers["Authorization"] = f"Bearer {settings.token}"
            login = (settings.username, settings.password)
            self._client = httpx.AsyncClient(
                auth=login if settings.username and not settings.token else None,
                headers=headers,
                verify=self._trusted(),
                trust_env=not is_loopback(settings.url),
                timeout=httpx.Timeout(self._timeout_s, connect=CONNECT_TIMEOUT_S),
                follow_redirects=False,
            )
        return self._client

    def _trusted(self) -> ssl.SSLContext | bool:
        settings = self._settings
        if not settings.url.startswith("https"):
            return False  # loading certificates takes 20 ms
        try:
            context = ssl.create_default_context(cafile=settings.ca_file or None)
            if settings.cert_file:
                context.load_cert_chain(settings.cert_file, settings.key_file or None)
        except (OSError, ssl.SSLError) as error:
            files = (settings.ca_file, settings.cert_file, settings.key_file)
            raise UnreachableError(
                f"{self.where} cannot be asked",
                f"{' or '.join(filter(None, files))}: {error}",
                f"check them under [{self._kind.name.lower()}]",
            ) from error
        if not settings.verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    @contextmanager
    def _explained(self, on: str) -> Iterator[None]:
        import httpx

        kind = self._kind
        try:
            yield
        except (httpx.TimeoutException, TimeoutError) as error:
            why = f"no complete answer within {in_seconds(self._timeout_s)}"
            raise UnreachableError(f"{self.where} does not answer", why) from error
        except bounded_body.AnswerTooLargeError as error:
            raise AnswerError(
                f"an answer of {self.where} is too large",
                f"more than {self._limit_bytes >> 20} MiB{on}",
                kind.narrow,
                status=200,
            ) from error
        except bounded_body.EncodingError as error:
            raise self.strange(str(error)) from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            why = self.plain(reason_of(error))
            raise UnreachableError(f"{self.where} cannot be reached", why, kind.reach) from error

    def refused(
        self, on: str, status: int, answer: bytes, headers: Mapping[str, str]
    ) -> CockpitError:
        """The error for an answer that is not a success."""
        kind, why = self._kind, f"HTTP {status}"
        if text := self.plain(_message(answer)):
            why += f": {text}"
        if status == 401:
            return NotAllowedError(f"{self.where} wants credentials", why, kind.credentials)
        if status == 403:
            what, todo = kind.refused
            return NotAllowedError(f"{self.where} {what}", why, todo)
        if status in (429, 502, 503, 504):
            return UnreachableError(f"{self.where} is not ready", why, "it is tried again")
        return AnswerError(f"{self.where} failed{on}", why, status=status)

    def plain(self, text: str) -> str:
        """One line, without the credentials."""
        return one_line(without_credentials(text, self._settings.secrets))


def _message(answer: bytes) -> str:
    """The server's own message; nothing of an HTML page."""
    text = answer[:4000].decode(errors="replace")
    try:
        found = loads(answer)
        return one_line(str(found.get("message") or found["error"]))
    except (ValueError, TypeError, KeyError, AttributeError):
        return "" if "<" in text else one_line(text)
