"""Kills at random for a while, at a mean time between failures, as a long run meets them."""

from __future__ import annotations

import time

from msgspec.structs import replace

from cockpit.drills.faults.catalog import fault
from cockpit.drills.faults.fault import (
    Aim,
    DrillContext,
    Fault,
    Order,
    Parameter,
    Prepared,
    Victims,
    injected,
    parameter_values,
)
from cockpit.drills.faults.pods import NO_DELETE
from cockpit.drills.plan import target
from cockpit.drills.plan.plan import TargetSpec, require_within
from cockpit.format import in_seconds
from cockpit.model.error import CockpitError
from cockpit.model.event import DrillInjected, Notice
from cockpit.model.text import one_line
from cockpit.sources.polling.pause import pause

RETRY_S = 1.0
"""How soon it looks again when a kill is due and there is nothing to kill: the run is on its way
back."""


async def random_kills(context: DrillContext, victims: Victims, order: Order) -> Prepared:
    """The waits between kills are drawn from an exponential distribution (a Poisson process)."""
    mtbf_s, for_s = float(order.values["mtbf_s"]), float(order.values["for_s"])
    chosen = fault(str(order.values["fault"]))
    groups = tuple(dict.fromkeys(pod.group for pod in victims.pods))
    if mtbf_s <= 0:
        raise CockpitError("The mean time between failures has to be more than 0 s.")

    async def kills() -> None:
        number = 0
        due_s = time.monotonic() + order.random.expovariate(1 / mtbf_s)
        while True:
            await pause(max(0.0, due_s - time.monotonic()))
            try:
                await kill_one(context, chosen, groups, order, number + 1)
            except CockpitError as error:
                _notify(context, order.drill_id, f"not killed: {one_line(error.what)}")
                due_s = time.monotonic() + RETRY_S
                continue
            number += 1
            due_s = time.monotonic() + order.random.expovariate(1 / mtbf_s)

    async def begin() -> None:
        """Nothing at once: the first kill follows a wait."""

    return Prepared(
        lines=(
            f"For {in_seconds(for_s)}, {chosen.name} at random, every {in_seconds(mtbf_s)} on "
            f"average, "
            f"in {'group ' + ', '.join(groups) if groups else 'all groups'}.",
            f"Each kill selects a new random target: any {_drawn_from(chosen)} there may be hit "
            "more than once.",
            "Kills pause while as many pods of a group are missing as the blast radius allows.",
        ),
        apply=begin,
        meanwhile=kills,
        lasts_s=for_s,
        parameters=order.used,
    )


async def kill_one(
    context: DrillContext, chosen: Fault, groups: tuple[str, ...], order: Order, number: int
) -> None:
    spec = TargetSpec(groups=groups)
    victims = await context.ask(lambda store: target.choose(store, chosen, spec, order.random))
    await context.ask(
        lambda store: require_within(store, victims.pods, order.blast_radius, with_missing=True)
    )
    name = f"{order.drill_id}.{number}"
    uids = {pod.name: pod.uid for pod in victims.pods}
    one = replace(order, drill_id=name, values=parameter_values(chosen, {}), uids=uids)
    prepared = await chosen.prepare(context, victims, one)
    drill = injected(name, chosen, victims, context.clock(), prepared)
    await prepared.apply()
    context.dispatch(DrillInjected(at_s=drill.injected_s, source="user", drill=drill))


def _drawn_from(chosen: Fault) -> str:
    return "rank" if chosen.aim is Aim.RANK else "worker pod"


def _notify(context: DrillContext, drill_id: str, message: str) -> None:
    context.dispatch(
        Notice(
            at_s=context.clock(),
            source="user",
            kind="Drill",
            name=drill_id,
            reason="Waits",
            message=message,
        )
    )


FAULTS = (
    Fault(
        "random-kills", "kill worker pods or ranks at random times", Aim.POD,
        random_kills,
        (
            Parameter("mtbf_s", 60.0, "mean time between two kills in seconds, more than 0"),
            Parameter("for_s", 300.0, "duration of the fault in seconds"),
            Parameter("fault", "pod-kill", "fault to inject: pod-kill or rank-kill",
                      ("pod-kill", "rank-kill")),
        ),
        needs=("those of the chosen fault",), repair="as for the chosen fault",
        unavailable=NO_DELETE,
    ),
)  # fmt: skip
