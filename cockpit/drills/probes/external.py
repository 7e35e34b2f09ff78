"""Probes that query Prometheus or run commands on this host."""

from __future__ import annotations

import asyncio
import math
import operator
import os
import shlex
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Protocol

from cockpit.drills.faults.fault import DrillContext
from cockpit.drills.plan.plan import ProbeSpec
from cockpit.drills.probes import steady_state
from cockpit.insight.recovery.measurement import Reading
from cockpit.model.drill import Drill
from cockpit.model.error import CockpitError, UsageError
from cockpit.model.text import one_line
from cockpit.sources.prometheus.api import Prometheus
from cockpit.sources.prometheus.settings import PrometheusSettings

FindPrometheus = Callable[[], Awaitable[PrometheusSettings]]
COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    ">=": operator.ge,
    ">": operator.gt,
}
OUTPUT_BYTES = 16 << 10
"""The size of the end of a command's output that is kept."""


async def prometheus(spec: ProbeSpec, find: FindPrometheus | None) -> tuple[bool | None, str]:
    """All series of the query against the limit. Raises what `Prometheus` does."""
    settings = await find() if find is not None else PrometheusSettings("")
    if not settings.url:
        return None, settings.why_not or "no Prometheus is known"
    async with aclosing(Prometheus(settings)) as client:
        curves = await client.instant(spec.query)
    values = [curve.values[-1] for curve in curves if curve.values]
    if not values:
        return None, "the query has no series"
    compare, limit = COMPARE[spec.operator or ">="], spec.limit if spec.limit is not None else 0.0
    wrong = [value for value in values if math.isnan(value) or not compare(value, limit)]
    shown = wrong[0] if wrong else values[0]
    of = f", {len(wrong)} of {len(values)} series" if wrong and len(values) > 1 else ""
    return not wrong, f"{shown:.6g}{of}"


async def command(spec: ProbeSpec) -> tuple[bool | None, str]:
    """Its exit code, and the last line that it wrote. A timeout kills it."""
    argv = shlex.split(spec.query)
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CockpitError(f"{one_line(argv[0], 80)} cannot be run: {why}.") from error
    try:
        reported = await _output(process)
        code = await process.wait()
    finally:
        # Including its child processes: it is a session leader.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    lines = reported.decode(errors="replace").strip().splitlines()
    text = f"exit code {code}" + (f": {one_line(lines[-1], 120)}" if lines else "")
    return code == 0, text


async def _output(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    kept = b""
    while part := await process.stdout.read(OUTPUT_BYTES):
        kept = (kept + part)[-OUTPUT_BYTES:]
    return kept


Answer = tuple[bool | None, str]
"""Whether it holds (None: unknown), and the observed value, with its unit."""


class Prober(Protocol):
    """Measures a probe."""

    async def ask(
        self, spec: ProbeSpec, drills: Sequence[Drill], readings: Mapping[str, Reading]
    ) -> Answer:
        """Evaluate the probe. Raises CockpitError when its source is unavailable.

        `drills` are those injected so far, and `readings` the state of the run just before each.
        """
        ...


class ContextProber:
    """Queries the store, the cluster, Prometheus and this host."""

    def __init__(self, context: DrillContext, prometheus: FindPrometheus | None = None) -> None:
        self._context, self._prometheus = context, prometheus

    async def ask(
        self, spec: ProbeSpec, drills: Sequence[Drill], readings: Mapping[str, Reading]
    ) -> Answer:
        match spec.kind:
            case "prometheus":
                return await prometheus(spec, self._prometheus)
            case "command":
                return await command(spec)
        check = steady_state.CHECKS.get(spec.kind)
        if check is None:
            raise UsageError(f"There is no probe {spec.kind!r}.")
        moment = steady_state.Moment(self._context.clock(), tuple(drills), dict(readings))
        return await self._context.ask(lambda store: check(store, spec, moment))
