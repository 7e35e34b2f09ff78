"""HTTP to an MLflow tracking server: bounded answers, and every failure as one of our errors.

httpx and TLS are loaded with the first question.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cockpit.format import in_seconds
from cockpit.model.decoding.limited_json import LimitError, loads
from cockpit.model.error import CockpitError, NotAllowedError, UnreachableError
from cockpit.model.secret import without_credentials
from cockpit.model.text import one_line
from cockpit.sources.http import bounded_body
from cockpit.sources.mlflow.settings import MlflowSettings
from cockpit.sources.ray.http import AnswerError
from cockpit.sources.server_settings import is_loopback

if TYPE_CHECKING:
    import httpx

TIMEOUT_S = 15.0
CONNECT_TIMEOUT_S = 5.0
ANSWER_LIMIT_BYTES = 16 << 20
API = "/api/2.0/mlflow/"
FILES = "/api/2.0/mlflow-artifacts/artifacts/"


class MlflowHttp:
    """Bound to the event loop of the first request."""

    def __init__(
        self,
        settings: MlflowSettings,
        *,
        timeout_s: float = TIMEOUT_S,
        limit_bytes: int = ANSWER_LIMIT_BYTES,
    ) -> None:
        self._settings = settings
        self._timeout_s, self._limit_bytes = timeout_s, limit_bytes
        self._client: httpx.AsyncClient | None = None

    @property
    def where(self) -> str:
        return f"MLflow at {self._settings.url}"

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Mapping[str, Any]:
        """The decoded answer, an object.

        Raises UnreachableError, NotAllowedError and AnswerError.
        """
        answer = await self._asked(method, API + path, params=params, json=body)
        try:
            decoded = loads(answer, max_bytes=self._limit_bytes)
        except LimitError as error:
            raise self.strange(str(error)) from error
        except ValueError as error:
            raise self.strange(answer[:200].decode(errors="replace") or "it is empty") from error
        if not isinstance(decoded, dict):
            raise self.strange(f"a {type(decoded).__name__}")
        return decoded

    async def put(self, path: str, content: bytes) -> None:
        """Store a file by the server's artifact proxy. Raises as `ask`."""
        await self._asked("PUT", FILES + path, content=content)

    async def _asked(self, method: str, path: str, **sent: Any) -> bytes:
        with self._explained():
            # httpx's timeouts apply between two bytes: a slow response would never time out.
            async with asyncio.timeout(self._timeout_s):
                status, answer = await self._fetch(method, path, sent)
        if status >= 300:
            raise self._refused(path, status, answer)
        return answer

    async def _fetch(self, method: str, path: str, sent: Mapping[str, Any]) -> tuple[int, bytes]:
        async with self._open().stream(method, self._settings.url + path, **sent) as response:
            try:
                return response.status_code, await bounded_body.body(response, self._limit_bytes)
            except bounded_body.AnswerTooLargeError as error:
                raise AnswerError(
                    f"an answer of {self.where} is too large",
                    f"more than {self._limit_bytes >> 20} MiB on {path.removeprefix(API)}",
                    "set the experiments to read in [mlflow]",
                    status=response.status_code,
                ) from error
            except bounded_body.EncodingError as error:
                raise self.strange(str(error)) from error

    def _open(self) -> httpx.AsyncClient:
        import httpx

        if self._client is None:
            settings = self._settings
            auth = (
                None
                if settings.token or not settings.username
                else (settings.username, settings.password)
            )
            self._client = httpx.AsyncClient(
                auth=auth,
                headers={
                    "Accept-Encoding": bounded_body.ACCEPT_ENCODING,
                    **({"Authorization": f"Bearer {settings.token}"} if settings.token else {}),
                },
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
                context.load_cert_chain(settings.cert_file)
        except (OSError, ssl.SSLError) as error:
            files = " or ".join(name for name in (settings.ca_file, settings.cert_file) if name)
            raise UnreachableError(
                f"{self.where} cannot be asked", f"{files}: {error}", "check them under [mlflow]"
            ) from error
        if not settings.verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def _plain(self, text: str) -> str:
        """The first line of an error, without the credentials."""
        return one_line(without_credentials(text, (self._settings.token, self._settings.password)))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        import httpx

        try:
            yield
        except (httpx.TimeoutException, TimeoutError) as error:
            why = f"no complete answer within {in_seconds(self._timeout_s)}"
            raise UnreachableError(f"{self.where} does not answer", why) from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            why = self._plain(str(error)) or type(error).__name__
            raise UnreachableError(
                f"{self.where} cannot be reached", why, "check that it runs, and the address"
            ) from error

    def strange(self, why: str) -> AnswerError:
        """For an answer that is none of MLflow's."""
        return AnswerError(
            f"{self.where} did not answer as an MLflow tracking server does",
            self._plain(why),
            "check that the address is MLflow's, not a page to log in",
            status=200,
        )

    def _refused(self, path: str, status: int, answer: bytes) -> CockpitError:
        why = f"HTTP {status}"
        if text := self._plain(_message(answer)):
            why += f": {text}"
        if status == 401:
            todo = "give credentials under [mlflow], or in MLFLOW_TRACKING_TOKEN or _USERNAME"
            return NotAllowedError(f"{self.where} wants credentials", why, todo)
        if status == 403:
            todo = "check the credentials; a server may also refuse its own address (allowed hosts)"
            return NotAllowedError(f"{self.where} refused", why, todo)
        if status in (429, 502, 503, 504):
            return UnreachableError(f"{self.where} is not ready", why, "it is tried again")
        if status < 400:
            return self.strange(f"{why}: it sends elsewhere")
        return AnswerError(f"{self.where} failed on {path.removeprefix(API)}", why, status=status)


def _message(answer: bytes) -> str:
    """MLflow's error message; nothing of an HTML page."""
    text = answer[:4000].decode(errors="replace")
    try:
        return one_line(str(loads(answer)["message"]))
    except (ValueError, TypeError, KeyError):
        return "" if "<" in text else one_line(text)
