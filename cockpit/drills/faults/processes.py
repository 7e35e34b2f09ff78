"""Faults that kill, freeze or slow down a process inside a pod; the pod itself stays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec import Struct

from cockpit.drills.engine import pod_script
from cockpit.drills.faults.fault import (
    NO_EXEC,
    Aim,
    DrillContext,
    Fault,
    Order,
    Parameter,
    Prepared,
    RankVictim,
    Undo,
    Victims,
)
from cockpit.drills.faults.pods import named
from cockpit.format import in_seconds
from cockpit.model.error import CockpitError, UsageError
from cockpit.model.text import as_sentence, one_line

FOR = Parameter("for_s", 30.0, "duration of the fault in seconds, at most 86,400")
LONGEST_S = 86_400.0
TICK_S = 1.0
"""A frozen process is stopped again after this, and its end is noticed."""
PERIOD_S = 0.05
"""A slow rank is stopped once in this time: shorter than a step, so that each step is slower."""


class Hit(Struct, frozen=True):
    """A process that was found: `process` is its number and its start, as scripts have it."""

    pod: str
    process: str
    name: str

    def key(self, order: Order) -> str:
        """Return the key of the effect on it (`cockpit.drills.pod_scripts.timed_effect`)."""
        return f"{order.drill_id}-{self.process.partition(':')[0]}"

    def release(self, order: Order, text: str) -> Undo:
        return pod_script.undo(text, self.pod, "release", self.key(order))


async def kill(
    context: DrillContext, victims: Victims, order: Order, program: str = "", then: str = ""
) -> Prepared:
    """SIGKILL the processes that run `program`, or the ranks.

    There is no undo: they restart. `then`: Ray's reaction, as a sentence.
    """
    if program:
        hits = await programs(context, victims, program)
    else:
        hits = await ranks(context, victims.ranks)
    by_pod: dict[str, list[str]] = {}
    for hit in hits:
        by_pod.setdefault(hit.pod, []).append(hit.process)
    return pod_script.prepared(
        context,
        order,
        (f"SIGKILL {hit.name}.{then}" for hit in hits),
        ((pod, "kill", *processes) for pod, processes in by_pod.items()),
    )


async def freeze(context: DrillContext, victims: Victims, order: Order) -> Prepared:
    """SIGSTOP, and SIGCONT after a while: the process is there and does nothing."""
    for_s = duration_s(order)
    hits = await ranks(context, victims.ranks)
    return stopped(context, order, hits, for_s, TICK_S, 0.0, "Freeze {} for {}.")


async def slow_rank(context: DrillContext, victims: Victims, order: Order) -> Prepared:
    for_s, share = duration_s(order), float(order.values["fraction"])
    if order.values["by"] == "hog":
        return await _busy_cores(context, victims, order, for_s)
    if not 0.01 <= share <= 0.99:
        raise UsageError(f"fraction of slow-rank is {share:g}.", "It has to be from 0.01 to 0.99.")
    hits = await ranks(context, victims.ranks)
    stop_s = PERIOD_S * share
    what = "Pause {} " + f"{share:.0%} of the time for " + "{}."
    return stopped(context, order, hits, for_s, stop_s, PERIOD_S - stop_s, what)


async def _busy_cores(
    context: DrillContext, victims: Victims, order: Order, for_s: float
) -> Prepared:
    if context.backend.ref.backend in ("local", "ssh"):
        raise UsageError(
            "There are no cores of one rank on this cluster.",
            "Its pods share those of their host: busy processes would slow every rank down.",
            "Use: by = throttle",
        )
    hits = await ranks(context, victims.ranks)
    return pod_script.prepared(
        context,
        order,
        (f"Keep the cores of {hit.name} busy for {in_seconds(for_s)}." for hit in hits),
        ((hit.pod, "cpu_hog", hit.key(order), f"{for_s:g}", "0", hit.process) for hit in hits),
        (hit.release(order, f"stop the CPU load on the cores of {hit.name}") for hit in hits),
        for_s,
    )


def stopped(
    context: DrillContext,
    order: Order,
    hits: Sequence[Hit],
    for_s: float,
    stop_s: float,
    run_s: float,
    what: str,
) -> Prepared:
    """Each of them is stopped for `stop_s` and runs for `run_s`, alternating."""
    times = (f"{for_s:g}", f"{stop_s:g}", f"{run_s:g}")
    return pod_script.prepared(
        context,
        order,
        (what.format(hit.name, in_seconds(for_s)) for hit in hits),
        ((hit.pod, "stop", hit.key(order), *times, hit.process) for hit in hits),
        (hit.release(order, f"let {hit.name} run again") for hit in hits),
        for_s,
    )


async def ranks(context: DrillContext, victims: Sequence[RankVictim]) -> tuple[Hit, ...]:
    """Raises CockpitError when one of them has ended, or its pod cannot be entered."""
    found: list[Hit] = []
    for victim in victims:
        name = f"rank {victim.rank} (process {victim.pid} in pod {victim.pod})"
        (process,) = await inspect(
            context, victim.pod, f"{name} is not there", "rank", str(victim.pid)
        )
        found.append(Hit(victim.pod, process, name))
    return tuple(found)


async def programs(context: DrillContext, victims: Victims, program: str) -> tuple[Hit, ...]:
    """All processes in the pods of the victims that run the program."""
    found: list[Hit] = []
    for pod in victims.pods:
        what = f"{named(pod)} has no process"
        for process in await inspect(context, pod.name, what, program):
            pid = process.partition(":")[0]
            found.append(Hit(pod.name, process, f"{program} (process {pid} in pod {pod.name})"))
    return tuple(found)


async def inspect(context: DrillContext, pod: str, missing: str, *arguments: str) -> list[str]:
    """The processes that the script reports, at least as many as requested."""
    what = as_sentence(missing)
    try:
        text = await pod_script.run(context.backend, pod, "inspect", *arguments, what=what)
    except UsageError as error:  # there is no such pod
        raise CockpitError(what, error.what_and_why) from error
    found = text.split()
    if len(found) < max(1, len(arguments) - 1):
        raise CockpitError(what, f"The pod's Python answered {one_line(text)[:80]!r}.")
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

FAULTS = (
    Fault(
        "rank-kill", "SIGKILL the process of a rank, as if the training code crashed", Aim.RANK,
        kill, needs=EXEC, repair="Ray Train restarts the run", unavailable=NO_EXEC,
    ),
    Fault(
        "raylet-kill", "SIGKILL the raylet of a worker pod, so that Ray loses the node",
        Aim.POD, partial(kill, program="raylet", then=WORKER_ENDS),
        needs=EXEC, repair="the pod is restarted", unavailable=NO_EXEC,
    ),
    Fault(
        "rank-freeze", "SIGSTOP the process of a rank, so that it hangs", Aim.RANK, freeze, (FOR,),
        needs=EXEC, undo="SIGCONT after for_s", unavailable=NO_EXEC,
    ),
    Fault(
        "slow-rank", "slow down one rank (a straggler), so that the other ranks wait", Aim.RANK,
        slow_rank,
        (
            FOR,
            Parameter("by", "throttle",
                      "pause the rank repeatedly (throttle), or keep its CPUs busy (hog)",
                      ("throttle", "hog")),
            Parameter("fraction", 0.5,
                      "share of the time in which throttle pauses the rank, 0.01 to 0.99"),
        ),
        needs=EXEC, undo="the slowdown ends after for_s", unavailable=NO_EXEC,
    ),
    Fault(
        "gcs-kill", "SIGKILL the GCS, which also ends the head", Aim.HEAD,
        partial(kill, program="gcs_server", then=HEAD_ENDS), needs=EXEC,
        repair="the head is restarted", unavailable=NO_EXEC,
    ),
    Fault(
        "dashboard-kill", "SIGKILL the dashboard, which also ends the head", Aim.HEAD,
        partial(kill, program="dashboard.py", then=HEAD_ENDS), needs=EXEC,
        repair="the head is restarted", unavailable=NO_EXEC,
    ),
)  # fmt: skip
