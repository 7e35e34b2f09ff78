"""The HTTP session under prometheus-api-client: credentials, and bounds that requests has not."""

from __future__ import annotations

import time
from typing import Any

import requests
import urllib3
from prometheus_api_client.prometheus_connect import PrometheusConnect
from requests.auth import AuthBase, HTTPBasicAuth
from urllib3.util.retry import Retry

from cockpit.model.decoding.limited_json import LimitError, check
from cockpit.model.text import one_line
from cockpit.sources.prometheus.errors import credentials, refused
from cockpit.sources.prometheus.settings import PrometheusSettings
from cockpit.sources.ray.http import AnswerError
from cockpit.sources.server_settings import is_loopback

CONNECT_TIMEOUT_S = 4.0
CHUNK_BYTES = 1 << 16
ERROR_LIMIT_BYTES = 1 << 16


def connect(settings: PrometheusSettings, timeout_s: float, limit_bytes: int) -> PrometheusConnect:
    """A client for one question."""
    session = BoundedSession(settings, timeout_s, limit_bytes)
    # No retries in the session (3, with waits): they would block the thread; the source retries.
    return PrometheusConnect(settings.url, session=session, retry=Retry(total=0, read=False))


class BoundedSession(requests.Session):
    """Timeouts in requests apply between two bytes: a slow server would block forever."""

    def __init__(self, settings: PrometheusSettings, timeout_s: float, limit_bytes: int) -> None:
        super().__init__()
        self._settings, self._timeout_s, self._limit_bytes = settings, timeout_s, limit_bytes
        self.verify = (settings.ca_file or True) if settings.verify else False
        if not settings.verify:  # intended: a warning on each request would be printed over the UI
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        self.cert = (settings.cert_file, settings.key_file) if settings.cert_file else None
        self.trust_env = not is_loopback(settings.url)
        self.headers.update(settings.headers)
        if settings.token:
            self.auth = _Bearer(settings.token)
        elif settings.username:
            self.auth = HTTPBasicAuth(settings.username.encode(), settings.password.encode())
        else:
            # Otherwise requests reads ~/.netrc for the host, and a header set here is lost.
            self.auth = _AsGiven()

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        """Raises our errors for an answer that is an error, too large or too slow."""
        deadline = time.monotonic() + self._timeout_s
        kwargs["stream"] = True
        kwargs["timeout"] = (min(CONNECT_TIMEOUT_S, self._timeout_s), self._timeout_s)
        kwargs["auth"] = self.auth
        kwargs["allow_redirects"] = False  # headers with a key would be forwarded
        response = super().request(*args, **kwargs)
        where = f"Prometheus at {self._settings.url}"
        limit = self._limit_bytes if response.ok else ERROR_LIMIT_BYTES
        whole = bytearray()
        try:
            # read1 returns available data; iter_content would wait for a complete chunk.
            while chunk := response.raw.read1(CHUNK_BYTES, decode_content=True):
                whole += chunk
                if len(whole) > limit and response.ok:
                    raise AnswerError(
                        f"the answer of {where} is too large",
                        f"more than {limit >> 20} MiB",
                        "narrow it down with selector under [prometheus]",
                        status=200,
                    )
                if len(whole) > limit:
                    break
                if time.monotonic() > deadline:
                    raise requests.Timeout
        finally:
            response.close()
        if response.is_redirect:
            raise AnswerError(
                f"{where} sends elsewhere",
                one_line(f"to {response.headers['Location'].partition('?')[0]}"),
                "set the address that it redirects to; a login page requires a token",
                status=response.status_code,
            )
        if not response.ok:
            secrets = credentials(self._settings)
            raise refused(where, response.status_code, bytes(whole), secrets)
        content = bytes(whole)
        try:
            check(content)
        except LimitError as error:
            raise AnswerError(
                f"the answer of {where} is refused",
                str(error),
                "narrow it down with selector under [prometheus]",
                status=200,
            ) from error
        except ValueError as error:
            raise requests.exceptions.JSONDecodeError(str(error), "", 0) from error
        response._content = content
        return response


class _Bearer(AuthBase):
    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class _AsGiven(AuthBase):
    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        return request
