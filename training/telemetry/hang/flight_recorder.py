"""torch's flight recorder: the collectives that this process has called, and which are pending.

Each backend has its own recorder (torch 2.15, FlightRecorder.hpp, format 2.10):

- gloo records natively. `state` stays "scheduled" when a collective is done; `retired` is correct.
  Its `last_enqueued_collective` counts sends and receives too, and its `pg_config` has one entry
  for all groups: so the newest sequence numbers are taken from the entries, and the members of the
  groups from torch.distributed.
- `nccl` is the backend nccl2 unless TORCH_DIST_USE_NCCL2=0. It and other backends are recorded by
  FlightRecorderHook, and their dump must be requested by name. `retired` is correct.
- The former NCCL backend has a dump of its own. There `state` is correct: an entry that is retired
  but not completed has timed out. The operations of a coalesced collective share a number, and only
  the last entry, `coalesced`, changes its state.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
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

FORMER_NCCL = "nccl:"

Key = tuple[str, str]
"""The name of a process group, and that of its backend."""

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


class TooLarge(Exception):
    """A dump that would take too long to read."""


def called() -> int:
    """Return a number that grows with every collective that this process calls; 0 without any."""
    total = 0
    with suppress(Exception):
        for group in list(_ranks_of_groups())[:POLLED_GROUPS]:
            try:
                total += group._get_sequence_number_for_group()
            except RuntimeError:  # a backend without sequence numbers
                continue
    return total


def read(wall_ns: Callable[[], int] = time.time_ns) -> Read:
    """Return the groups, their progress, and their newest collectives; else why there are none.

    Does not raise.
    """
    try:
        groups = _groups()
        if not groups:
            return (), (), (), "torch.distributed is not initialized"
        dumps = list(_dumps({backend for _, backend in groups}))
        if not dumps:
            version = getattr(sys.modules.get("torch"), "__version__", "")
            return (), (), (), f"torch {version} has no flight recorder"
        if called() and not any(dump.get("entries") for dump in dumps):
            return (), (), (), "the flight recorder is off: TORCH_FR_BUFFER_SIZE is 0"
        return reduce(groups, dumps, wall_ns())
    except TooLarge as error:
        return (), (), (), str(error)
    except Exception as error:  # noqa: BLE001 - internals of any version of torch
        return (), (), (), f"the flight recorder was not read: {type(error).__name__}"[:TEXT]


def _dumps(backends: Collection[str]) -> Iterator[Mapping[str, Any]]:
    c10d = sys.modules.get("torch._C._distributed_c10d")
    texts: list[bytes] = []
    if (of_backend := getattr(c10d, "_dump_fr_trace_json", None)) is not None:
        texts.append(of_backend())
        with suppress(TypeError):  # before torch 2.15 only the one of gloo
            texts += [of_backend(backend=name) for name in sorted(set(backends) - {"", "gloo"})]
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    of_nccl = getattr(c10d, "_dump_nccl_trace_json", None)
    if of_nccl is not None and cuda is not None and cuda.is_initialized():
        texts.append(of_nccl())
    for text in texts:
        if len(text) > BYTES:
            raise TooLarge(
                f"the flight recorder has {len(text) >> 20} MiB, more than {BYTES >> 20}: set "
                "TORCH_FR_BUFFER_SIZE"
            )
        yield json.loads(text)


def _ranks_of_groups() -> Mapping[Any, Mapping[int, int]]:
    """By group: its ranks, each with its number within the group."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    world = getattr(c10d, "_world", None)
    known = dict(world.pg_group_ranks) if world is not None else {}
    return {group: ranks for group, ranks in known.items() if hasattr(group, "group_name")}


def _groups() -> dict[Key, ProcessGroup]:
    found = {}
    for group, ranks in _ranks_of_groups().items():
        description = str(getattr(group, "group_desc", ""))
        backends = _backends(group)
        for backend in backends:
            of = f" ({backend})" if len(backends) > 1 else ""
            found[group.group_name, backend] = ProcessGroup(
                name=group.group_name[:TEXT],
                description=f"{description[: TEXT - len(of)]}{of}",
                members=tuple(sorted(ranks)),
            )
    return found


def _backends(group: Any) -> list[str]:
    """Return two for `cpu:gloo,cuda:nccl`: each numbers its own collectives."""
    names = set()
    for device in getattr(group, "_device_types", ()):
        with suppress(RuntimeError):
            names.add(str(group._get_backend(device).name()))
    return sorted(names) or [""]


def reduce(groups: Mapping[Key, ProcessGroup], dumps: list[Mapping[str, Any]], now_ns: int) -> Read:
    """Keep the pending collectives of each group, and the newest completed ones."""
    backends: dict[str, list[str]] = {}
    for name, backend in groups:
        backends.setdefault(name, []).append(backend)
    entries: dict[Key, dict[int, list[Mapping[str, Any]]]] = {}
    for dump in dumps:
        for entry in dump.get("entries") or ():
            name = str(entry["process_group"][0])
            known = backends.get(name, ())
            recorded = str(entry.get("profiling_name", "")).rpartition(":")[0]
            key = (name, known[0] if len(known) == 1 else recorded)
            if key in groups and not entry.get("is_p2p"):
                seq = int(entry["collective_seq_id"])
                entries.setdefault(key, {}).setdefault(seq, []).append(entry)
    pending = {
        key: [seq for seq, of in by_seq.items() if not _done(of)] for key, by_seq in entries.items()
    }
    # Groups with a pending collective come first, then the most recently used ones.
    order = sorted(
        groups,
        key=lambda key: (
            not pending.get(key),
            -max((of[-1]["time_created_ns"] for of in entries.get(key, {}).values()), default=0),
        ),
    )[:GROUPS]
    reached, collectives = [], []
    for index, key in enumerate(order):
        by_seq = entries.get(key, {})
        waiting = sorted(pending.get(key, ()))
        done = sorted(by_seq.keys() - waiting)
        reached.append(
            Reached(group=index, enqueued=max(by_seq, default=0), completed=max(done, default=0)),
        )
        for seq in (*waiting[:RECENT], *done[-RECENT:]):
            collectives.append(_collective(index, by_seq[seq], now_ns))
    reported = tuple(sorted(collectives, key=lambda one: one.done)[:COLLECTIVES])
    return tuple(groups[key] for key in order), tuple(reached), reported, ""


def _done(entries: list[Mapping[str, Any]]) -> bool:
    """Whether a collective is done; several entries are the operations of a coalesced one."""
    last = entries[-1]
    is_retired = bool(last.get("retired")) and not last["profiling_name"].startswith(FORMER_NCCL)
    return is_retired or last.get("state") == "completed"


def _collective(group: int, entries: list[Mapping[str, Any]], now_ns: int) -> Collective:
    entry = entries[0]
    op = str(entry.get("profiling_name", "")).rpartition(":")[2]
    return Collective(
        group=group,
        seq=int(entry["collective_seq_id"]),
        op=op[:TEXT],
        shape=_shape(entry),
        age_s=max(0.0, (now_ns - int(entry["time_created_ns"])) / 1e9),
        done=_done(entries),
    )


def _shape(entry: Mapping[str, Any]) -> str:
    sizes = entry.get("input_sizes") or ()
    types = entry.get("input_dtypes") or ()
    reported = [
        f"{_TYPES.get(kind, str(kind).lower())} {list(size)}"
        for size, kind in zip(sizes, types, strict=False)
    ]
    return ", ".join(reported)[:TEXT]
