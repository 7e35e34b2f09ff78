"""Prometheus: a run's curves from before it was watched, and what other exporters measure now.

Optional: without an address, or if the server has none of these metrics, this source is absent and
reports why.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Unpack

from msgspec import Struct

from cockpit.format import in_seconds
from cockpit.model.alert import PastAlert
from cockpit.model.event import (
    Event,
    GpuActivityListed,
    HistoryLoaded,
    PastAlertsLoaded,
    PodTrafficListed,
    ServeMeasured,
    SourceHealth,
)
from cockpit.model.tracking import Pods, RunRef, Runs, no_pods, no_runs
from cockpit.sources.polling.source import PollingOptions, PollingSource
from cockpit.sources.prometheus import dcgm, network, past_alerts, serve
from cockpit.sources.prometheus import history as history
from cockpit.sources.prometheus.api import Curve, Prometheus
from cockpit.sources.prometheus.settings import NOWHERE, PrometheusSettings
from cockpit.sources.ray.http import AnswerError

POLL_S = 10.0
PRESENCE_S = 60.0
"""The interval at which missing series are queried again, and a missing address is checked."""
CURVES_AWAITED_S = 20.0
"""How long to wait for the run's telemetry to report where its curves begin."""
TRIES = 3
"""Interval of queries for a run whose curves begin: its newest samples are scraped later."""
RUNS_A_POLL = 4
CLEARED_S = 120.0
"""How long after the end of a run its alerts are cleared, at most."""
SKEW_S = 5.0
"""Larger clock differences are reported."""

Find = Callable[[], Awaitable[PrometheusSettings]]


class _Asked(Struct):
    """How much of the history of one run is read."""

    seen_s: float
    next_s: float
    """Both by the monotonic clock."""
    tries: int = 0
    has_alerts: bool = False
    """Whether its past alerts are read, or the server has refused them."""
    done: bool = False
    why_not: str = ""


class PrometheusSource(PollingSource):
    """HistoryLoaded, once for each curve of a run; PastAlertsLoaded, once for each run;
    GpuActivityListed; ServeMeasured; PodTrafficListed; SourceHealth.

    `runs` returns the watched runs, and `pods` the pods whose traffic Ray does not report; both
    are awaited on the loop of this source. `settings` may be a function that finds out; while its
    answer has no address, this source is absent.
    """

    name = "prometheus"
    first_retry_s, last_retry_s = 1.0, 60.0

    def __init__(
        self,
        settings: PrometheusSettings | Find,
        runs: Runs = no_runs,
        pods: Pods = no_pods,
        *,
        poll_s: float = POLL_S,
        least_step_s: int = history.LEAST_STEP_S,
        curves_awaited_s: float = CURVES_AWAITED_S,
        open_client: Callable[[PrometheusSettings], Prometheus] = Prometheus,
        **polling: Unpack[PollingOptions],
    ) -> None:
        super().__init__(poll_s=poll_s, **polling)
        self._find = _always(settings) if isinstance(settings, PrometheusSettings) else settings
        self._runs, self._pods = runs, pods
        self._least_step_s, self._curves_awaited_s = least_step_s, curves_awaited_s
        self._open = open_client
        self._asked: dict[str, _Asked] = {}
        self._has: frozenset[str] = frozenset()
        """The metric names of the server at the last query."""
        self._asked_has_s = -math.inf
        self._listed = False
        """Whether the newest list of GPUs had any."""
        self._measured = False
        """Whether the newest list of the traffic of pods had any."""
        self._remembered = False
        """Whether it had a past of any run."""

    async def poll(self) -> AsyncGenerator[Event, None]:
        settings = await self._find()
        if not settings.url:
            yield self.health(PRESENCE_S, absent=True, error=settings.why_not or NOWHERE)
            return
        async with aclosing(self._open(settings)) as client:
            server_s = await self._ask(client, settings.selector)
            async for event in self._news(client, settings.selector, server_s):
                yield event
            yield self._answered(client, server_s)

    def _answered(self, client: Prometheus, server_s: float) -> SourceHealth:
        """The health of a server that answers."""
        if self._has or self._remembered:
            return self.health(error="; ".join(self._complaints(server_s)))
        wait_s = self._pause_s(self._poll_s, self.rest_s)
        text = f"{client.where} scrapes neither Ray nor DCGM nor the kubelets"
        return self.health(max(wait_s, PRESENCE_S), absent=True, error=text)

    async def _ask(self, client: Prometheus, selector: str) -> float:
        """The server's clock; from time to time also which names it has."""
        server_s = await client.now_s()
        now_s = self._monotonic()
        if now_s - self._asked_has_s >= PRESENCE_S:
            found = await client.instant(history.presence(selector))
            self._has = frozenset(curve.labels.get("__name__", "") for curve in found)
            self._asked_has_s = now_s
        return server_s

    async def _news(
        self, client: Prometheus, selector: str, server_s: float
    ) -> AsyncGenerator[Event, None]:
        if self._listed or self._has & {*dcgm.NAMES}:
            gpus = dcgm.activity(await client.instant(dcgm.query(selector)))
            if gpus or self._listed:
                yield GpuActivityListed(at_s=self._clock(), source=self.name, gpus=gpus)
            self._listed = bool(gpus)
        if serve.LATENCY in self._has:
            loads = serve.loads(await client.instant(serve.query(selector)))
            yield ServeMeasured(at_s=self._clock(), source=self.name, loads=loads)
        pods = await self._pods()
        if self._measured or (pods.names and network.RECEIVED in self._has):
            query = network.query(pods.namespace, selector)
            found = network.traffic(await client.instant(query), pods.names) if pods.names else ()
            if found or self._measured:
                yield PodTrafficListed(at_s=self._clock(), source=self.name, pods=found)
            self._measured = bool(found)
        due = [run for run in await self._runs() if self._is_due(run)]
        for run in due[:RUNS_A_POLL]:
            asked = self._asked[run.id]
            asked.tries += 1
            asked.next_s = self._monotonic() + PRESENCE_S
            try:
                if not asked.has_alerts:
                    alerts = await self._past_alerts(client, run, server_s)
                    asked.has_alerts = True
                    if alerts:
                        yield PastAlertsLoaded(
                            at_s=self._clock(), source=self.name, run_id=run.id, alerts=alerts
                        )
                curves = await self._history(client, run, selector, server_s)
            except AnswerError as error:  # such as a query that is too much for the server
                asked.has_alerts = True
                asked.why_not = f"no history of run {run.name or run.id}: {error}"
                asked.done = asked.tries >= TRIES
                continue
            asked.why_not = ""
            asked.done = bool(curves) or (
                asked.tries >= TRIES and (run.first_point_s or run.ended_s) is not None
            )
            for event in curves:
                self._remembered = True
                yield event

    def _is_due(self, run: RunRef) -> bool:
        now_s = self._monotonic()
        asked = self._asked.setdefault(run.id, _Asked(now_s, now_s))
        if asked.done or now_s < asked.next_s:
            return False
        if run.first_point_s is not None or run.ended_s is not None:
            return True
        # Points that are put before a curve that is empty would be in the way of the telemetry's.
        return now_s - asked.seen_s >= self._curves_awaited_s

    async def _history(
        self, client: Prometheus, run: RunRef, selector: str, server_s: float
    ) -> list[Event]:
        """The curves of the run from its beginning to where they are known."""
        end_s = min(server_s, run.first_point_s or run.ended_s or server_s)
        coarse_s = history.step_of(history.HISTORY_S)
        query = history.beginning(run.id, coarse_s, selector)
        # The last step must be the end itself: a run that has just begun is only there.
        first_s = end_s - history.HISTORY_S // coarse_s * coarse_s
        reported = await client.range(query, first_s, end_s, coarse_s)
        begun = [curve.times[0] - coarse_s for curve in reported if curve.times]
        # The run may be older than its first event; its series show when it began.
        begin_s = min(begun, default=run.started_s)
        if not begin_s or begin_s >= end_s:
            return []
        step_s = history.step_of(end_s - begin_s, self._least_step_s)
        span = begin_s, end_s, step_s
        found = await self._of_ranks(client, run, selector, span) if begun else {}
        events = [self._loaded(run, field, curve, 1.0) for field, curve in found.items()]
        if "gpu_utilization_percent" not in found:
            events += await self._of_nodes(client, run, selector, span)
        return events

    async def _past_alerts(
        self, client: Prometheus, run: RunRef, server_s: float
    ) -> tuple[PastAlert, ...]:
        """Those of the time until now, also after the curves begin: only a session raises any."""
        end_s = min(server_s, run.ended_s or server_s)
        span_s = min(end_s - (run.started_s or 0.0), history.HISTORY_S)
        step_s = history.step_of(span_s, past_alerts.LEAST_STEP_S)
        query = past_alerts.query(run.id, step_s)
        # An alert of the last moments of a run is cleared after its end.
        fired = await client.range(query, end_s - span_s, min(server_s, end_s + CLEARED_S), step_s)
        return past_alerts.past_alerts(fired, run.id, server_s, step_s)

    async def _of_ranks(
        self, client: Prometheus, run: RunRef, selector: str, span: tuple[float, float, int]
    ) -> dict[str, Curve]:
        """By field of `RankSample`."""
        means = await client.range(history.means(run.id, selector), *span)
        sums: Sequence[Curve] = await client.range(history.sums(run.id, selector), *span)
        if not sums:
            query = history.means_of_sums(run.id, selector)
            sums = history.times_ranks(await client.range(query, *span))
        found: dict[str, Curve] = {}
        for curves, fields in ((means, history.MEANS), (sums, history.SUMS)):
            for curve in curves:
                if field := history.field_of(curve, fields):
                    found.setdefault(field, curve)
        return found

    async def _of_nodes(
        self, client: Prometheus, run: RunRef, selector: str, span: tuple[float, float, int]
    ) -> list[Event]:
        """Metrics of Ray's agents on the run's GPUs, for a run whose ranks reported none."""
        events: list[Event] = []
        for field, (_, _, unit) in history.NODE_GPUS.items():
            query = history.node_gpus(field, run.gpus, selector)
            if query:
                curves = await client.range(query, *span)
                events += [self._loaded(run, field, curve, unit) for curve in curves if curve.times]
        return events

    def _loaded(self, run: RunRef, field: str, curve: Curve, unit: float) -> Event:
        return HistoryLoaded(
            at_s=self._clock(),
            source=self.name,
            run_id=run.id,
            metric=field,
            times=curve.times,
            values=tuple(value * unit for value in curve.values),
        )

    def _complaints(self, server_s: float) -> list[str]:
        """A problem of a server that responds."""
        lines = [asked.why_not for asked in self._asked.values() if asked.why_not]
        ahead_s = server_s - self._clock()
        if abs(ahead_s) > SKEW_S:
            text = "ahead of" if ahead_s > 0 else "behind"
            lines.append(f"its clock is {in_seconds(abs(ahead_s), 0)} {text} this machine's")
        return lines


def _always(settings: PrometheusSettings) -> Find:
    async def same() -> PrometheusSettings:
        return settings

    return same
