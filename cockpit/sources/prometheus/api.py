"""Query Prometheus through prometheus-api-client.

That client is synchronous, reads complete responses into memory and quotes them in its errors. Here
each query runs in a separate daemon thread, has a total timeout, and is bounded in size; errors are
reported without credentials. The client and requests are imported with the first query: they cost
120 ms.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from cockpit.format import in_seconds
from cockpit.model.error import CockpitError, UnreachableError
from cockpit.model.secret import without_credentials
from cockpit.model.text import one_line
from cockpit.sources.polling.thread import in_thread
from cockpit.sources.prometheus.errors import credentials
from cockpit.sources.ray.http import AnswerError

if TYPE_CHECKING:
    from prometheus_api_client.prometheus_connect import PrometheusConnect

    from cockpit.sources.prometheus.settings import PrometheusSettings

T = TypeVar("T")

TIMEOUT_S = 10.0
ANSWER_LIMIT_BYTES = 32 << 20
"""Three DCGM series of 10,000 GPUs are 6 MB."""


MISUNDERSTOOD = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""Errors when parsing an unexpected response."""


class Curve(Struct, frozen=True):
    """One series: its labels, and its points in ascending order. NaN and infinity are kept."""

    labels: Mapping[str, str]
    times: tuple[float, ...]
    """Unix seconds by the server's clock."""
    values: tuple[float, ...]


class Prometheus:
    """A client of one Prometheus, or of what answers as one (Thanos, Mimir, VictoriaMetrics).

    Every method may raise UnreachableError, NotAllowedError and AnswerError.
    """

    def __init__(
        self,
        settings: PrometheusSettings,
        *,
        timeout_s: float = TIMEOUT_S,
        limit_bytes: int = ANSWER_LIMIT_BYTES,
    ) -> None:
        self._settings = settings
        self._timeout_s, self._limit_bytes = timeout_s, limit_bytes

    @property
    def where(self) -> str:
        """The address to show: without user and password."""
        return f"Prometheus at {self._settings.url}"

    async def now_s(self) -> float:
        """The server's clock."""
        found = await self.instant("vector(time())")
        return found[0].values[0] if found else math.nan

    async def instant(self, query: str) -> tuple[Curve, ...]:
        """The newest value of each series, as curves of one point."""
        return await self._ask(
            lambda client: client.custom_query(query),
            lambda item: _curve(item, [item["value"]]),
        )

    async def range(
        self, query: str, start_s: float, end_s: float, step_s: int
    ) -> tuple[Curve, ...]:
        """Each series from `start_s` to `end_s`, both inclusive and rounded to seconds."""
        start, end = (datetime.fromtimestamp(at_s, UTC) for at_s in (start_s, end_s))
        return await self._ask(
            lambda client: client.custom_query_range(query, start, end, str(step_s)),
            lambda item: _curve(item, item["values"]),
        )

    async def _ask(
        self, work: Callable[[PrometheusConnect], Any], parse: Callable[[Any], Curve]
    ) -> tuple[Curve, ...]:
        try:
            # The session has timeouts for connecting and reading, but none for DNS resolution, or
            # for headers that arrive slowly.
            async with asyncio.timeout(self._timeout_s * 2):
                return await in_thread(lambda: self._explained(work, parse), "cockpit-prometheus")
        except TimeoutError as error:
            raise self._timed_out() from error

    def _explained(
        self, work: Callable[[PrometheusConnect], Any], parse: Callable[[Any], Curve]
    ) -> tuple[Curve, ...]:
        """The library's errors as ours. Runs in the thread of the question."""
        import requests
        import urllib3
        from prometheus_api_client.exceptions import PrometheusApiClientException

        from cockpit.sources.prometheus.http_session import connect

        client = connect(self._settings, self._timeout_s, self._limit_bytes)
        try:
            return tuple(parse(item) for item in work(client))
        except CockpitError:
            raise
        except (requests.Timeout, urllib3.exceptions.TimeoutError) as error:
            raise self._timed_out() from error
        except requests.exceptions.SSLError as error:
            raise UnreachableError(
                f"{self.where} is not trusted",
                self._plain(_root(error)),
                "name its certificate authority with ca_file under [prometheus]",
            ) from error
        except requests.exceptions.JSONDecodeError as error:
            raise self._strange("the answer is not JSON") from error
        except urllib3.exceptions.DecodeError as error:
            raise self._strange(str(error)) from error
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            raise UnreachableError(
                f"{self.where} cannot be reached", self._plain(_root(error)), "check the address"
            ) from error
        except MISUNDERSTOOD as error:
            raise self._strange(f"{type(error).__name__}: {error}") from error
        except PrometheusApiClientException as error:
            # Only for a success other than 200: the session raises for every error status.
            raise self._strange("the answer is empty") from error
        finally:
            client.close()

    def _plain(self, text: str) -> str:
        return one_line(without_credentials(text, credentials(self._settings)))

    def _timed_out(self) -> UnreachableError:
        why = f"no complete answer within {in_seconds(self._timeout_s)}"
        return UnreachableError(f"{self.where} does not answer", why)

    def _strange(self, why: str) -> AnswerError:
        return AnswerError(
            f"{self.where} did not answer as a Prometheus does",
            self._plain(why),
            "check that the address is a Prometheus's, not a page to log in",
            status=200,
        )


def _curve(item: Mapping[str, Any], points: Any) -> Curve:
    return Curve(
        {str(name): str(value) for name, value in item["metric"].items()},
        tuple(float(at_s) for at_s, _ in points),
        tuple(float(value) for _, value in points),  # "NaN" and "+Inf" are numbers to Python too
    )


def _root(error: BaseException) -> str:
    """The innermost reason: requests wraps urllib3's, which wraps the socket's."""
    while inner := _inner(error):
        error = inner
    text = one_line(str(error))
    return text.rpartition(": ")[2] if "Failed to establish" in text else text


def _inner(error: BaseException) -> BaseException | None:
    first = error.args[0] if error.args else None
    found = getattr(error, "reason", None) or getattr(first, "reason", None) or first
    return found if isinstance(found, BaseException) else None
