"""Checks of the steady state: what has to hold before, during and after a fault.

The kinds and their words are in `cockpit.drills.probes.hypothesis`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from cockpit.drills.faults.fault import DrillContext
from cockpit.drills.plan.plan import ProbeSpec
from cockpit.drills.probes import external, steady_state
from cockpit.drills.probes.external import FindPrometheus
from cockpit.insight.recovery.measurement import Reading
from cockpit.model.drill import Drill
from cockpit.model.error import UsageError

Answer = tuple[bool | None, str]
"""Whether it holds (None: it cannot be told), and what was found, with its unit."""


class Prober(Protocol):
    """Who asks a probe."""

    async def ask(
        self, spec: ProbeSpec, drills: Sequence[Drill], readings: Mapping[str, Reading]
    ) -> Answer:
        """What it finds now. Raises CockpitError when it cannot be asked.

        `drills` are those injected so far, and `readings` how the run was just before each.
        """
        ...


class ContextProber:
    """Asks the store, the cluster, Prometheus and this machine."""

    def __init__(self, context: DrillContext, prometheus: FindPrometheus | None = None) -> None:
        self._context, self._prometheus = context, prometheus

    async def ask(
        self, spec: ProbeSpec, drills: Sequence[Drill], readings: Mapping[str, Reading]
    ) -> Answer:
        match spec.kind:
            case "prometheus":
                return await external.prometheus(spec, self._prometheus)
            case "command":
                return await external.command(spec)
        check = steady_state.CHECKS.get(spec.kind)
        if check is None:
            raise UsageError(f"There is no probe {spec.kind!r}.")
        moment = steady_state.Moment(self._context.clock(), tuple(drills), dict(readings))
        return await self._context.ask(lambda store: check(store, spec, moment))
