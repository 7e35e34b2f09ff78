"""Faults of checkpoint storage: full, read-only, slow; and a damaged checkpoint."""

from __future__ import annotations

import re
from functools import partial
from typing import Literal

from cockpit.drills.engine import pod_script
from cockpit.drills.faults.fault import (
    NO_EXEC,
    Aim,
    DrillContext,
    Fault,
    Order,
    Parameter,
    Prepared,
    Victims,
)
from cockpit.drills.faults.pods import named
from cockpit.format import in_seconds
from cockpit.model.cluster import Pod
from cockpit.model.error import CockpitError

FOR = Parameter("for_s", 30.0, "duration of the fault in seconds")
UNTIL_RESTORED = Parameter("for_s", 60.0, "seconds until the files are restored")


async def directory(
    context: DrillContext, victims: Victims, order: Order, *, way: Literal["read-only", "busy"]
) -> Prepared:
    """The run's directory, as one pod sees it: for all of them where it is shared."""
    for_s = float(order.values["for_s"])
    pod, where = _place(victims, victims.storage_path, "directory of checkpoints")
    name = _name(order)
    await pod_script.run(context.backend, pod.name, "storage", "check", way, where)
    writers = str(order.values.get("writers", ""))
    what = f"busy with {writers} writers" if writers else "read-only"
    off = ("storage", "off", name, where)
    return pod_script.prepared(
        context,
        order,
        (f"{named(pod)}: {where} is {what} for {in_seconds(for_s)}.",),
        ((pod.name, "storage", way, name, where, f"{for_s:g}", *([writers] if writers else [])),),
        (pod_script.undo(f"restore {where}", pod.name, *off, anywhere=True),),
        for_s,
    )


async def full(context: DrillContext, victims: Victims, order: Order) -> Prepared:
    """Writes of the ranks fail beyond a size. No disk is filled: others' would be full with it."""
    for_s, most = float(order.values["for_s"]), int(order.values["limit_bytes"])
    if not victims.ranks:
        raise CockpitError(f"No rank of a run is on pod {victims.name}.")
    name = _name(order)
    pids_by_pod: dict[str, list[str]] = {}
    for pod in victims.pods:
        pids = [str(rank.pid) for rank in victims.ranks if rank.pod == pod.name]
        if pids:
            text = await pod_script.run(context.backend, pod.name, "filelimit", "check", *pids)
            pids_by_pod[pod.name] = text.split()
    ranks = ", ".join(str(rank.rank) for rank in victims.ranks)
    on = ("filelimit", "on", name, str(most), f"{for_s:g}")
    off = ("filelimit", "off", name)
    return pod_script.prepared(
        context,
        order,
        (f"Rank {ranks}: no file grows beyond {most:,} bytes for {in_seconds(for_s)}.",),
        ((pod, *on, *processes) for pod, processes in pids_by_pod.items()),
        (
            pod_script.undo(
                f"remove the file size limit of the ranks in pod {pod}", pod, *off, *processes
            )
            for pod, processes in pids_by_pod.items()
        ),
        for_s,
    )


async def damage(
    context: DrillContext, victims: Victims, order: Order, *, way: Literal["corrupt", "delete"]
) -> Prepared:
    """Of the newest checkpoint, after its files were copied; the undo restores the copies."""
    for_s = float(order.values["for_s"])
    pod, where = _place(victims, victims.checkpoint_path, "checkpoint")
    await pod_script.run(context.backend, pod.name, "checkpoint", "check", way, where)
    name = _name(order)
    what = "Flip bytes in" if way == "corrupt" else "Remove half of the files of"
    restore = ("checkpoint", "restore", name, where)
    return pod_script.prepared(
        context,
        order,
        (f"{what} {where}, for {in_seconds(for_s)}.",),
        ((pod.name, "checkpoint", way, name, where),),
        (pod_script.undo(f"restore {where}", pod.name, *restore, anywhere=True),),
        for_s,
    )


def _place(victims: Victims, path: str, what: str) -> tuple[Pod, str]:
    if not path:
        raise CockpitError(
            f"There is no {what} yet.",
            "The run has reported no checkpoint." if victims.run_id else "No run is active.",
            "Wait for the first one: cockpit runs",
        )
    if "://" in path:
        raise CockpitError(
            f"{path} is not a directory.", "Only a file system that pods mount can be made to fail."
        )
    return victims.pods[0], path


def _name(order: Order) -> str:
    return re.sub(r"[^\w-]", "-", f"cockpit-{order.drill_id}")


EXEC = ("exec in the pod",)

FAULTS = (
    Fault(
        "storage-full", "make a rank's writes fail beyond a file size, as on a full disk",
        Aim.RANK, full,
        (Parameter("limit_bytes", 16_384, "maximum size of a file in bytes"), FOR),
        needs=EXEC, undo="the limit is removed after for_s", unavailable=NO_EXEC,
    ),
    Fault(
        "storage-read-only", "make the checkpoint directory of the run read-only", Aim.STORAGE,
        partial(directory, way="read-only"), (FOR,),
        needs=(*EXEC, "ownership of the directory, or root with LINUX_IMMUTABLE"),
        undo="the directory is made writable after for_s", unavailable=NO_EXEC,
    ),
    Fault(
        "storage-slow", "load the storage of the checkpoint directory with writes and syncs",
        Aim.STORAGE, partial(directory, way="busy"),
        (Parameter("writers", 8, "number of writing processes"), FOR),
        needs=EXEC, undo="the processes end after for_s, and their files are deleted",
        unavailable=NO_EXEC,
    ),
    Fault(
        "checkpoint-corrupt", "flip bytes in the largest file of the newest checkpoint",
        Aim.CHECKPOINT, partial(damage, way="corrupt"), (UNTIL_RESTORED,), needs=EXEC,
        ends_by_itself=False, undo="the file is restored after for_s", unavailable=NO_EXEC,
    ),
    Fault(
        "checkpoint-delete", "delete half of the files of the newest checkpoint",
        Aim.CHECKPOINT, partial(damage, way="delete"), (UNTIL_RESTORED,), needs=EXEC,
        ends_by_itself=False, undo="the files are restored after for_s", unavailable=NO_EXEC,
    ),
)  # fmt: skip
