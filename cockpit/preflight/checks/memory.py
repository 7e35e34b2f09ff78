"""Whether memory and /dev/shm suffice for ranks, their spares and the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from cockpit.format import bytes_text, plural, verb
from cockpit.preflight.checks.placement import ranks_on
from cockpit.preflight.demand import Demand
from cockpit.preflight.facts import Facts, Memory
from cockpit.preflight.finding import Finding, State, listed
from cockpit.preflight.target import Target

USABLE = 0.95
"""Ray's memory monitor ends workers above this share (RAY_memory_usage_threshold)."""
PROCESS_BYTES = 512 << 20
"""A process with torch and Ray Train: a rank before its model, or a spare. Measured: 0.49 GB."""
DRIVER_BYTES = 1 << 30
"""The driver, and Ray Train's controller beside it."""
SHM_FULL_BYTES, SHM_LITTLE_BYTES = 16 << 20, 256 << 20
"""Below these, shared memory cannot be used at all, and not by data loaders and NCCL."""


class _Pool(Struct):
    """Memory that one or several pods share."""

    memory: Memory
    pods: list[str]
    ranks: int = 0
    drivers: int = 0

    @property
    def free_bytes(self) -> float:
        return USABLE * self.memory.size_bytes - self.memory.used_bytes


def memory(facts: Mapping[str, Facts], target: Target, demand: Demand) -> Iterator[Finding]:
    """From the pods themselves, else from what Ray reports of their nodes."""
    pools: dict[str, _Pool] = {}
    room = ranks_on(target, demand)
    for pod in target.pods:
        found = _memory(pod.name, facts, target)
        if found is None or found.size_bytes <= 0:
            continue
        pool = pools.setdefault(found.host or pod.name, _Pool(found, []))
        pool.pods.append(pod.name)
        pool.ranks += room.get(pod.name, 0)
        pool.drivers += pod is target.head
    used = [pool for pool in pools.values() if pool.ranks or pool.drivers]
    if not used:
        return
    for pool in used:
        if demand.workers is not None:
            pool.ranks = min(pool.ranks, demand.workers)
    short, without_spares = [], []
    each = max(demand.memory_bytes, PROCESS_BYTES)
    for pool in used:
        needs = pool.ranks * each + pool.drivers * DRIVER_BYTES
        if pool.free_bytes < needs:
            short.append((pool, needs))
        elif demand.spares and pool.free_bytes < needs + pool.ranks * PROCESS_BYTES:
            without_spares.append(pool)
    if short:
        pool, needs = max(short, key=lambda item: item[1] - item[0].free_bytes)
        users = [plural(pool.ranks, "rank")] if pool.ranks else []
        users += ["the driver"] if pool.drivers else []
        yield Finding(
            "memory",
            State.FAILED,
            f"{bytes_text(max(0, pool.free_bytes))} of {bytes_text(pool.memory.size_bytes)} left "
            f"in {listed(pool.pods)}; at least {bytes_text(needs)} needed for "
            f"{' and '.join(users)}.",
            "Raise the memory limit of the pods, or place fewer ranks in each.",
            tuple(pod for pool, _ in short for pod in pool.pods),
        )
    if without_spares:
        pods = [pod for pool in without_spares for pod in pool.pods]
        yield Finding(
            "memory of spares",
            State.WARNING,
            f"{listed(pods)} {verb(len(pods), 'have')} memory for the ranks, but not "
            "for spare processes: restarts take longer.",
            f"Raise the memory limit by {bytes_text(PROCESS_BYTES)} for each rank.",
            tuple(pods),
        )
    if not short and not without_spares:
        least = min(used, key=lambda pool: pool.free_bytes)
        yield Finding("memory", State.OK, f"at least {bytes_text(least.free_bytes)} left")


def _memory(pod: str, facts: Mapping[str, Facts], target: Target) -> Memory | None:
    if (known := facts.get(pod)) is not None:
        return known.memory
    node = next((target.node(one) for one in target.pods if one.name == pod), None)
    if node is None or node.memory_total_bytes is None or node.memory_used_bytes is None:
        return None
    return Memory(node.memory_total_bytes, node.memory_used_bytes)


def shared_memory(facts: Mapping[str, Facts], demand: Demand) -> Iterator[Finding]:
    rooms = {pod: of.shm for pod, of in facts.items()}
    present = {pod: room for pod, room in rooms.items() if room is not None}
    if not rooms:
        return
    fix = "Mount an emptyDir with medium Memory at /dev/shm."
    if absent := tuple(pod for pod in rooms if pod not in present):
        yield Finding("/dev/shm", State.FAILED, f"missing in {listed(absent)}.", fix, absent)
        return
    pod, least = min(present.items(), key=lambda item: item[1].free_bytes)
    found = f"{bytes_text(least.free_bytes)} of {bytes_text(least.size_bytes)} free"
    if least.free_bytes < SHM_FULL_BYTES:
        full = tuple(pod for pod, room in present.items() if room.free_bytes < SHM_FULL_BYTES)
        yield Finding(
            "/dev/shm",
            State.FAILED,
            f"{found} in {listed(full)}.",
            f"Delete files of ended processes there. {fix}",
            full,
        )
    elif least.free_bytes < SHM_LITTLE_BYTES and (demand.loaders or demand.gpus):
        users = "data loader processes" if demand.loaders else "NCCL"
        yield Finding(
            "/dev/shm", State.WARNING, f"{found} in {pod}; {users} need more.", fix, (pod,)
        )
    else:
        yield Finding("/dev/shm", State.OK, f"at least {found}")
