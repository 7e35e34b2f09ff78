"""Faults that take CPUs or memory from a pod."""

from __future__ import annotations

from cockpit.drills.engine import pod_script
from cockpit.drills.faults.fault import (
    NO_EXEC,
    Aim,
    DrillContext,
    Fault,
    Order,
    Parameter,
    Prepared,
    Undo,
    Victims,
)
from cockpit.drills.faults.pods import named
from cockpit.drills.faults.processes import EXEC, FOR, duration_s, ranks
from cockpit.format import in_seconds
from cockpit.model.error import CockpitError, UsageError
from cockpit.model.text import one_line

GIB = 1 << 30


async def cpu_hog(context: DrillContext, victims: Victims, order: Order) -> Prepared:
    for_s, count = duration_s(order), int(order.values["processes"])
    for pod in victims.pods:
        what = f"{named(pod)} is not running."
        await pod_script.run(context.backend, pod.name, "inspect", "raylet", what=what)
    many = str(count) if count else "one process per CPU"
    return pod_script.prepared(
        context,
        order,
        (
            f"Keep the CPUs of {named(pod)} busy for {in_seconds(for_s)}: {many}."
            for pod in victims.pods
        ),
        ((p.name, "cpu_hog", order.drill_id, f"{for_s:g}", str(count)) for p in victims.pods),
        (_release(pod.name, order, "stop the CPU load on") for pod in victims.pods),
        for_s,
    )


async def memory_hog(context: DrillContext, victims: Victims, order: Order) -> Prepared:
    """Limited to the container's memory: one of its processes ends, or the container.

    With cgroup v2 the kubelet lets the kernel kill all processes of the container
    (`memory.oom.group`, since Kubernetes 1.28); with v1 the kernel kills the process with the
    highest score: the rank.
    """
    for_s, percent = duration_s(order), float(order.values["percent"])
    fill_s = float(order.values["fill_s"])
    if not 1 <= percent <= 100 or not 0 < fill_s <= for_s:
        raise UsageError(
            f"percent of memory-hog is {percent:g}, and fill_s is {fill_s:g}.",
            "percent must be from 1 to 100, and fill_s more than 0 and at most for_s.",
        )
    hits = await ranks(context, victims.ranks)
    of_pod = {pod.name: [hit for hit in hits if hit.pod == pod.name] for pod in victims.pods}
    lines: list[str] = []
    for pod in victims.pods:
        what = f"The memory of {named(pod)} cannot be filled."
        text = await pod_script.run(context.backend, pod.name, "memory_hog", "measure", what=what)
        limit, used_bytes = _two_numbers(what, text)
        first = ", ".join(hit.name for hit in of_pod[pod.name])
        lines.append(
            f"Fill the memory of {named(pod)} from {used_bytes / GIB:.2f} to {percent:g} % of "
            f"{limit / GIB:.2f} GiB within {in_seconds(fill_s)}, and hold it for at most "
            f"{in_seconds(for_s)}." + (f" First to be killed: {first}." if first else "")
        )
    fill = ("memory_hog", "fill", order.drill_id, f"{for_s:g}", f"{percent:g}", f"{fill_s:g}")
    return pod_script.prepared(
        context,
        order,
        lines,
        ((pod, *fill, *(hit.process for hit in found)) for pod, found in of_pod.items()),
        (_release(pod.name, order, "free the memory of") for pod in victims.pods),
        for_s,
    )


def _release(pod: str, order: Order, text: str) -> Undo:
    return pod_script.undo(f"{text} pod {pod}", pod, "release", order.drill_id)


def _two_numbers(what: str, text: str) -> tuple[int, int]:
    try:
        limit, used_bytes = map(int, text.split())
    except ValueError as error:
        raise CockpitError(what, f"The pod's Python answered {one_line(text)[:80]!r}.") from error
    return limit, used_bytes


FAULTS = (
    Fault(
        "cpu-hog", "keep the CPUs of a worker pod busy", Aim.POD, cpu_hog,
        (FOR, Parameter("processes", 0, "number of busy processes; 0 means one for each CPU")),
        needs=EXEC, undo="the processes end after for_s",
        unavailable=NO_EXEC | {
            "local": "its pods share the machine's cores: slow-rank slows one rank alone",
            "ssh": "a pod has the cores of its host: slow-rank slows one rank alone",
        },
    ),
    Fault(
        "memory-hog", "fill a worker pod's memory until the kernel or Ray kills a rank", Aim.POD,
        memory_hog,
        (
            FOR,
            Parameter("percent", 100.0, "percentage of the container's memory limit, 1 to 100"),
            Parameter("fill_s", 5.0, "seconds to fill the memory, more than 0, at most for_s"),
        ),
        needs=(*EXEC, "a memory limit on the container"), undo="the memory is freed after for_s",
        unavailable=NO_EXEC
        | {
            "local": "its pods share the machine's memory, with everything else that runs there",
            "ssh": "a pod has the memory of its host, with everything else that runs there",
        },
    ),
)  # fmt: skip
