"""A process inside a pod is killed, frozen or slowed down; the pod itself stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cockpit.drills.engine import pod_script
from cockpit.drills.faults.fault import (
    Aim,
    DrillContext,
    Fault,
    FaultKind,
    Order,
    Parameter,
    Prepared,
    RankVictim,
    Undo,
    Victims,
    no_way_in,
)
from cockpit.drills.faults.pods import named
from cockpit.model.error import CockpitError, UsageError
from cockpit.model.text import as_sentence, one_line

FOR = Parameter("for_s", 30.0, "seconds until it ends by itself")
LONGEST_S = 86_400.0
TICK_S = 1.0
"""A frozen process is stopped anew after this, and its end is noticed."""
PERIOD_S = 0.05
"""A slow rank stands still once in this time: shorter than a step, so that each is slower."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A process that was found: `process` is its number and its start, as scripts have it."""

    pod: str
    process: str
    name: str

    def key(self, order: Order) -> str:
        """What is held of it, as the pod's file of it is named."""
        return f"{order.drill_id}-{self.process.partition(':')[0]}"

    def release(self, order: Order, text: str) -> Undo:
        return pod_script.undo(text, self.pod, "release", self.key(order))


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL; nothing is undone, for the cluster makes a new one."""

    kind: FaultKind
    program: str = ""
    """What the process runs; empty: it is a rank's."""
    then: str = ""
    """What Ray does of it, as a sentence."""

    def obstacle(self, backend: str) -> str:
        return no_way_in(backend)

    async def prepare(self, context: DrillContext, victims: Victims, order: Order) -> Prepared:
        if self.program:
            hits = await programs(context, victims, self.program)
        else:
            hits = await ranks(context, victims.ranks)

        async def apply() -> None:
            await pod_script.run_in_each(
                context.backend,
                (
                    (pod, "kill", *(hit.process for hit in hits if hit.pod == pod))
                    for pod in dict.fromkeys(hit.pod for hit in hits)
                ),
            )

        return Prepared(
            lines=tuple(f"SIGKILL {hit.name}.{self.then}" for hit in hits),
            apply=apply,
            parameters=order.used,
        )


@dataclass(frozen=True, slots=True)
class Freeze:
    """SIGSTOP, and SIGCONT after a while: the process is there and does nothing."""

    kind: FaultKind

    def obstacle(self, backend: str) -> str:
        return no_way_in(backend)

    async def prepare(self, context: DrillContext, victims: Victims, order: Order) -> Prepared:
        for_s = duration_s(order)
        hits = await ranks(context, victims.ranks)
        return held(context, order, hits, for_s, TICK_S, 0.0, "Freeze {} for {:g} s.")


@dataclass(frozen=True, slots=True)
class SlowRank:
    kind: FaultKind

    def obstacle(self, backend: str) -> str:
        return no_way_in(backend)

    async def prepare(self, context: DrillContext, victims: Victims, order: Order) -> Prepared:
        for_s, share = duration_s(order), float(order.values["fraction"])
        if order.values["by"] == "hog":
            return await self._hog(context, victims, order, for_s)
        if not 0.01 <= share <= 0.99:
            raise UsageError(
                f"fraction of {self.kind.name} is {share:g}.", "It has to be from 0.01 to 0.99."
            )
        hits = await ranks(context, victims.ranks)
        still_s = PERIOD_S * share
        what = "Pause {} " + f"{share:.0%} of the time for " + "{:g} s."
        return held(context, order, hits, for_s, still_s, PERIOD_S - still_s, what)

    async def _hog(
        self, context: DrillContext, victims: Victims, order: Order, for_s: float
    ) -> Prepared:
        if context.backend.ref.backend == "local":
            raise UsageError(
                "There are no cores of one rank on a local cluster.",
                "Its pods share the machine's: busy processes would slow every rank down.",
                "Use: by = throttle",
            )
        hits = await ranks(context, victims.ranks)

        async def apply() -> None:
            await pod_script.run_in_each(
                context.backend,
                ((hit.pod, "hog", hit.key(order), f"{for_s:g}", "0", hit.process) for hit in hits),
            )

        return Prepared(
            lines=tuple(f"Keep the cores of {hit.name} busy for {for_s:g} s." for hit in hits),
            apply=apply,
            undo=tuple(hit.release(order, f"let the cores of {hit.name} alone") for hit in hits),
            lasts_s=for_s,
            parameters=order.used,
        )


def held(
    context: DrillContext,
    order: Order,
    hits: Sequence[Hit],
    for_s: float,
    still_s: float,
    run_s: float,
    what: str,
) -> Prepared:
    """Each of them stands still for `still_s` and runs for `run_s`, in turns."""

    async def apply() -> None:
        times = (f"{for_s:g}", f"{still_s:g}", f"{run_s:g}")
        await pod_script.run_in_each(
            context.backend,
            ((hit.pod, "stop", hit.key(order), *times, hit.process) for hit in hits),
        )

    return Prepared(
        lines=tuple(what.format(hit.name, for_s) for hit in hits),
        apply=apply,
        undo=tuple(hit.release(order, f"let {hit.name} run again") for hit in hits),
        lasts_s=for_s,
        parameters=order.used,
    )


async def ranks(context: DrillContext, victims: Sequence[RankVictim]) -> tuple[Hit, ...]:
    """Raises CockpitError when one of them is gone, or its pod cannot be entered."""
    found: list[Hit] = []
    for victim in victims:
        name = f"rank {victim.rank} (process {victim.pid} in pod {victim.pod})"
        (process,) = await look(
            context, victim.pod, f"{name} is not there", "rank", str(victim.pid)
        )
        found.append(Hit(victim.pod, process, name))
    return tuple(found)


async def programs(context: DrillContext, victims: Victims, program: str) -> tuple[Hit, ...]:
    """All processes of the victims' pods that run it."""
    found: list[Hit] = []
    for pod in victims.pods:
        what = f"{named(pod)} has no process to be hit"
        for process in await look(context, pod.name, what, program):
            pid = process.partition(":")[0]
            found.append(Hit(pod.name, process, f"{program} (process {pid} in pod {pod.name})"))
    return tuple(found)


async def look(context: DrillContext, pod: str, missing: str, *arguments: str) -> list[str]:
    """The processes that the script names, one for each that was asked for or more."""
    what = as_sentence(missing)
    try:
        said = await pod_script.run(context.backend, pod, "look", *arguments, what=what)
    except UsageError as error:  # the pod itself is gone
        raise CockpitError(what, " ".join((error.what, error.why)).strip()) from error
    found = said.split()
    if len(found) < max(1, len(arguments) - 1):
        raise CockpitError(what, f"The pod's Python answered {one_line(said)[:80]!r}.")
    return found


def duration_s(order: Order) -> float:
    for_s = float(order.values["for_s"])
    if not 0 < for_s <= LONGEST_S:
        raise UsageError(
            f"for_s is {for_s:g}.", f"It has to be more than 0, and at most {LONGEST_S:g}."
        )
    return for_s


EXEC = ("exec in the pod",)
HEAD_ENDS = " The head ends with it: `ray start --block` ends when one of its processes was killed."
WORKER_ENDS = " Ray on that pod ends with it, and all of its ranks."

FAULTS: dict[str, Fault] = {
    "rank-kill": Kill(
        FaultKind("rank-kill", "SIGKILL a rank's process: a crash of the training code", Aim.RANK,
                  needs=EXEC)
    ),
    "raylet-kill": Kill(
        FaultKind("raylet-kill", "SIGKILL a pod's raylet: Ray loses the node, the pod is restarted",
                  Aim.POD, needs=EXEC),
        program="raylet", then=WORKER_ENDS,
    ),
    "rank-freeze": Freeze(
        FaultKind("rank-freeze", "SIGSTOP a rank's process: a hang", Aim.RANK, (FOR,),
                  needs=EXEC, undo="SIGCONT")
    ),
    "slow-rank": SlowRank(
        FaultKind(
            "slow-rank", "slow one rank down, so that all others wait: a straggler", Aim.RANK,
            (
                FOR,
                Parameter("by", "throttle",
                          "throttle: stop and continue the rank; hog: keep its cores busy",
                          ("throttle", "hog")),
                Parameter("fraction", 0.5, "throttle: share of the time that the rank is stopped"),
            ),
            needs=EXEC, undo="it runs freely again",
        )
    ),
    "gcs-kill": Kill(
        FaultKind("gcs-kill", "SIGKILL the GCS on the head; the head ends", Aim.HEAD,
                  needs=EXEC),
        program="gcs_server", then=HEAD_ENDS,
    ),
    "dashboard-kill": Kill(
        FaultKind("dashboard-kill", "SIGKILL the dashboard on the head; the head ends",
                  Aim.HEAD, needs=EXEC),
        program="dashboard.py", then=HEAD_ENDS,
    ),
}  # fmt: skip
