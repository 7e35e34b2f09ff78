"""The queries of Prometheus's HTTP API, as curves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from cockpit.sources.json_server import JsonServer, ServerKind
from cockpit.sources.prometheus.settings import PrometheusSettings

PROMETHEUS = ServerKind(
    name="Prometheus",
    noun="a Prometheus",
    reach="check the address; ca_file under [prometheus] names its certificate authority",
    credentials="give a token or a password under [prometheus] in the configuration",
    refused=("refused the credentials", ""),
    narrow="narrow it down with selector under [prometheus]",
    timeout_s=10.0,
    limit_bytes=32 << 20,  # three DCGM series of 10,000 GPUs are 6 MB
)


class Curve(Struct, frozen=True):
    """One series: its labels, and its points in ascending order. NaN and infinity are kept."""

    labels: Mapping[str, str]
    times: tuple[float, ...]
    """Unix seconds by the server's clock."""
    values: tuple[float, ...]


class Prometheus:
    """A client of one Prometheus, or of what answers as one (Thanos, Mimir, VictoriaMetrics).

    Every method may raise UnreachableError, NotAllowedError and AnswerError. `limits`: as for
    JsonServer.
    """

    def __init__(self, settings: PrometheusSettings, **limits: Any) -> None:
        self._http = JsonServer(PROMETHEUS, settings, **limits)
        self.where = self._http.where

    async def aclose(self) -> None:
        await self._http.aclose()

    async def now_s(self) -> float:
        """The server's clock."""
        found = await self.instant("vector(time())")
        return found[0].values[0] if found else math.nan

    async def instant(self, query: str) -> tuple[Curve, ...]:
        """The newest value of each series, as curves of one point."""
        return await self._ask("query", {"query": query})

    async def range(
        self, query: str, start_s: float, end_s: float, step_s: int
    ) -> tuple[Curve, ...]:
        """Each series from `start_s` to `end_s`, both inclusive and rounded to seconds."""
        times = {"start": str(round(start_s)), "end": str(round(end_s)), "step": str(step_s)}
        return await self._ask("query_range", {"query": query, **times})

    async def _ask(self, path: str, params: Mapping[str, str]) -> tuple[Curve, ...]:
        answer = await self._http.ask("GET", f"/api/v1/{path}", params=params)
        with self._http.understood():
            return tuple(map(_curve, answer["data"]["result"]))


def quoted(text: str) -> str:
    """Quote as a PromQL string, with Go's escapes."""
    inner = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{inner}"'


def _curve(item: Mapping[str, Any]) -> Curve:
    points = [item["value"]] if "value" in item else item["values"]
    return Curve(
        {str(name): str(value) for name, value in item["metric"].items()},
        tuple(float(at_s) for at_s, _ in points),
        tuple(float(value) for _, value in points),  # "NaN" and "+Inf" are numbers to Python too
    )
