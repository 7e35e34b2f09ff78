"""Where checkpoints go: full, read-only, slow; and a checkpoint that is damaged."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from cockpit.drills.engine import pod_script
from cockpit.drills.faults.fault import (
    Aim,
    DrillContext,
    Fault,
    FaultKind,
    Order,
    Parameter,
    Prepared,
    Victims,
    no_way_in,
)
from cockpit.drills.faults.pods import named
from cockpit.model.cluster import Pod
from cockpit.model.error import CockpitError

FOR = Parameter("for_s", 30.0, "seconds until it ends")


@dataclass(frozen=True, slots=True)
class Directory:
    """The run's directory, as one pod sees it: for all of them where it is shared."""

    kind: FaultKind
    way: Literal["read-only", "busy"]

    def obstacle(self, backend: str) -> str:
        return no_way_in(backend)

    async def prepare(self, context: DrillContext, victims: Victims, order: Order) -> Prepared:
        for_s = float(order.values["for_s"])
        pod, where = _place(victims, victims.storage_path, "directory of checkpoints")
        name = _name(order)
        await pod_script.run(context.backend, pod.name, "storage", "check", self.way, where)
        writers = str(order.values.get("writers", ""))

        async def apply() -> None:
            said = (self.way, name, where, f"{for_s:g}", *([writers] if writers else []))
            await pod_script.run(context.backend, pod.name, "storage", *said)

        what = f"busy with {writers} writers" if writers else "read-only"
        return Prepared(
            lines=(f"{named(pod)}: {where} is {what} for {for_s:g} s.",),
            apply=apply,
            undo=(
                pod_script.undo(
                    f"give {where} back as it was",
                    pod.name,
                    *("storage", "off", name, where),
                    anywhere=True,
                ),
            ),
            lasts_s=for_s,
            parameters=order.used,
        )


@dataclass(frozen=True, slots=True)
class Full:
    """Writes of the ranks fail beyond a size. No disk is filled: others' would be full with it."""

    kind: FaultKind

    def obstacle(self, backend: str) -> str:
        return no_way_in(backend)

    async def prepare(self, context: DrillContext, victims: Victims, order: Order) -> Prepared:
        for_s, most = float(order.values["for_s"]), int(order.values["limit_bytes"])
        if not victims.ranks:
            raise CockpitError(f"No rank of a run is on pod {victims.name}.")
        known: dict[str, list[str]] = {}
        for pod in victims.pods:
            pids = [str(rank.pid) for rank in victims.ranks if rank.pod == pod.name]
            if pids:
                said = await pod_script.run(context.backend, pod.name, "filelimit", "check", *pids)
                known[pod.name] = said.split()

        async def apply() -> None:
            for pod, processes in known.items():
                said = (_name(order), str(most), f"{for_s:g}", *processes)
                await pod_script.run(context.backend, pod, "filelimit", "on", *said)

        ranks = ", ".join(str(rank.rank) for rank in victims.ranks)
        return Prepared(
            lines=(f"Rank {ranks}: no file grows beyond {most:,} bytes for {for_s:g} s.",),
            apply=apply,
            undo=tuple(
                pod_script.undo(
                    f"let the ranks in pod {pod} write again",
                    pod,
                    *("filelimit", "off", _name(order), *processes),
                )
                for pod, processes in known.items()
            ),
            lasts_s=for_s,
            parameters=order.used,
        )


@dataclass(frozen=True, slots=True)
class Damage:
    """Of the newest checkpoint, after its files were copied; the undo restores the copies."""

    kind: FaultKind
    way: Literal["corrupt", "delete"]

    def obstacle(self, backend: str) -> str:
        return no_way_in(backend)

    async def prepare(self, context: DrillContext, victims: Victims, order: Order) -> Prepared:
        for_s = float(order.values["for_s"])
        pod, where = _place(victims, victims.checkpoint_path, "checkpoint")
        await pod_script.run(context.backend, pod.name, "checkpoint", "check", self.way, where)
        name = _name(order)

        async def apply() -> None:
            await pod_script.run(context.backend, pod.name, "checkpoint", self.way, name, where)

        what = "Flip bytes in" if self.way == "corrupt" else "Remove half of the files of"
        return Prepared(
            lines=(f"{what} {where}, for {for_s:g} s.",),
            apply=apply,
            undo=(
                pod_script.undo(
                    f"put {where} back as it was",
                    pod.name,
                    *("checkpoint", "restore", name, where),
                    anywhere=True,
                ),
            ),
            lasts_s=for_s,
            parameters=order.used,
        )


def _place(victims: Victims, path: str, what: str) -> tuple[Pod, str]:
    if not path:
        raise CockpitError(
            f"There is no {what} yet.",
            "The run has reported no checkpoint." if victims.run_id else "No run is going.",
            "Wait for the first one: cockpit runs",
        )
    if "://" in path:
        raise CockpitError(
            f"{path} is no directory.", "Only a file system that pods mount can be made to fail."
        )
    return victims.pods[0], path


def _name(order: Order) -> str:
    return re.sub(r"[^\w-]", "-", f"cockpit-{order.drill_id}")


FAULTS: dict[str, Fault] = {
    "storage-full": Full(
        FaultKind(
            "storage-full", "make a rank's writes beyond a size fail (EFBIG), as on a full disk",
            Aim.RANK, (Parameter("limit_bytes", 16_384, "maximum size of a file in bytes"), FOR),
            needs=("exec in the pod",), undo="the limit is removed",
        )
    ),
    "storage-read-only": Directory(
        FaultKind(
            "storage-read-only", "make the directory of the checkpoints read-only", Aim.STORAGE,
            (FOR,), needs=("exec in the pod", "ownership of the directory, or LINUX_IMMUTABLE"),
            undo="the directory is writable again",
        ),
        "read-only",
    ),
    "storage-slow": Directory(
        FaultKind(
            "storage-slow", "load the storage of the checkpoints with writes and syncs",
            Aim.STORAGE, (Parameter("writers", 8, "number of writing processes"), FOR),
            needs=("exec in the pod",), undo="the processes end, and their files are deleted",
        ),
        "busy",
    ),
    "checkpoint-corrupt": Damage(
        FaultKind(
            "checkpoint-corrupt", "corrupt bytes of the newest checkpoint", Aim.CHECKPOINT,
            (Parameter("for_s", 60.0, "seconds until it is restored"),),
            needs=("exec in the pod",), ends_by_itself=False, undo="the checkpoint is restored",
        ),
        "corrupt",
    ),
    "checkpoint-delete": Damage(
        FaultKind(
            "checkpoint-delete", "remove half of the newest checkpoint's files", Aim.CHECKPOINT,
            (Parameter("for_s", 60.0, "seconds until they are restored"),),
            needs=("exec in the pod",), ends_by_itself=False, undo="its files are restored",
        ),
        "delete",
    ),
}  # fmt: skip
