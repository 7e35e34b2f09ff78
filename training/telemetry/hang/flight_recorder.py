"""torch's flight recorder: the collectives that this process has called, and which are pending.

With gloo `state` stays "scheduled" when a collective is done; `retired` is correct (torch 2.15).
`last_enqueued_collective` of gloo counts sends and receives too, and its `pg_config` has one entry
for all groups: so the newest sequence numbers are taken from the entries, and the members of the
groups from torch.distributed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from training.telemetry.wire import Collective, ProcessGroup, Reached

GROUPS = 64
RECENT = 3
"""The number of completed collectives of a group that are reported: peers compare them."""
COLLECTIVES = 64
BYTES = 8 << 20
TEXT = 96
POLLED_GROUPS = 512
"""Whose calls are counted: a quarter of a microsecond each, once a second."""

Read = tuple[tuple[ProcessGroup, ...], tuple[Reached, ...], tuple[Collective, ...], str]

_TYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Byte": "uint8",
    "Bool": "bool",
}


def called() -> int:
    """Return a number that grows with every collective that this process calls; 0 without any."""
    total = 0
    with suppress(Exception):
        for group in list(_ranks_of_groups())[:POLLED_GROUPS]:
            total += group._get_sequence_number_for_group()
    return total


def read(wall_ns: Callable[[], int] = time.time_ns) -> Read:
    """Return the groups, their progress, and their newest collectives; else why there are none.

    Does not raise.
    """
    try:
        groups = _groups()
        if not groups:
            return (), (), (), "torch.distributed is not initialized"
        dumps = list(_dumps())
        if not dumps:
            version = getattr(sys.modules.get("torch"), "__version__", "")
            return (), (), (), f"torch {version} has no flight recorder"
        return reduce(groups, dumps, wall_ns())
    except Exception as error:  # noqa: BLE001 - internals of any version of torch
        return (), (), (), f"the flight recorder was not read: {type(error).__name__}"[:TEXT]


def _dumps() -> Iterator[Mapping[str, Any]]:
    c10d = sys.modules.get("torch._C._distributed_c10d")
    texts = []
    if (of_gloo := getattr(c10d, "_dump_fr_trace_json", None)) is not None:
        texts.append(of_gloo())
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    of_nccl = getattr(c10d, "_dump_nccl_trace_json", None)
    if of_nccl is not None and cuda is not None and cuda.is_initialized():
        texts.append(of_nccl())
    for text in texts:
        if len(text) > BYTES:
            raise ValueError("a dump of too many bytes")
        yield json.loads(text)


def _ranks_of_groups() -> Mapping[Any, Mapping[int, int]]:
    """By group: its ranks, each with its number within the group."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    world = getattr(c10d, "_world", None)
    known = dict(world.pg_group_ranks) if world is not None else {}
    return {group: ranks for group, ranks in known.items() if hasattr(group, "group_name")}


def _groups() -> dict[str, ProcessGroup]:
    return {
        group.group_name: ProcessGroup(
            name=group.group_name[:TEXT],
            description=str(getattr(group, "group_desc", ""))[:TEXT],
            members=tuple(sorted(ranks)),
        )
        for group, ranks in _ranks_of_groups().items()
    }


def reduce(groups: Mapping[str, ProcessGroup], dumps: list[Mapping[str, Any]], now_ns: int) -> Read:
    """Keep the pending collectives of each group, and the newest completed ones."""
    entries: dict[str, list[Mapping[str, Any]]] = {}
    for dump in dumps:
        for entry in dump.get("entries") or ():
            name = str(entry["process_group"][0])
            if name in groups and not entry.get("is_p2p"):
                entries.setdefault(name, []).append(entry)
    # Groups with a pending collective come first, then the most recently used ones.
    order = sorted(
        groups,
        key=lambda name: (
            all(map(_done, entries.get(name, ()))),
            -max((entry["time_created_ns"] for entry in entries.get(name, ())), default=0),
        ),
    )[:GROUPS]
    reached, collectives = [], []
    for index, name in enumerate(order):
        of_group = sorted(entries.get(name, ()), key=lambda entry: int(entry["collective_seq_id"]))
        done = [entry for entry in of_group if _done(entry)]
        waiting = [entry for entry in of_group if not _done(entry)]
        reached.append(
            Reached(group=index, enqueued=_newest(of_group), completed=_newest(done)),
        )
        collectives += [_collective(index, entry, now_ns) for entry in waiting[:RECENT]]
        collectives += [_collective(index, entry, now_ns) for entry in done[-RECENT:]]
    reported = tuple(sorted(collectives, key=lambda one: one.done)[:COLLECTIVES])
    return tuple(groups[name] for name in order), tuple(reached), reported, ""


def _done(entry: Mapping[str, Any]) -> bool:
    return bool(entry.get("retired")) or entry.get("state") == "completed"


def _newest(entries: list[Mapping[str, Any]]) -> int:
    return int(entries[-1]["collective_seq_id"]) if entries else 0


def _collective(group: int, entry: Mapping[str, Any], now_ns: int) -> Collective:
    op = str(entry.get("profiling_name", "")).rpartition(":")[2]
    return Collective(
        group=group,
        seq=int(entry["collective_seq_id"]),
        op=op[:TEXT],
        shape=_shape(entry),
        age_s=max(0.0, (now_ns - int(entry["time_created_ns"])) / 1e9),
        done=_done(entry),
    )


def _shape(entry: Mapping[str, Any]) -> str:
    sizes = entry.get("input_sizes") or ()
    types = entry.get("input_dtypes") or ()
    reported = [
        f"{_TYPES.get(kind, str(kind).lower())} {list(size)}"
        for size, kind in zip(sizes, types, strict=False)
    ]
    return ", ".join(reported)[:TEXT]
