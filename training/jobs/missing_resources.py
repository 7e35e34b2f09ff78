"""Check whether a cluster has the resources for a run's workers, and report what is missing."""

from __future__ import annotations

from dataclasses import dataclass

from training.jobs.placement import Placement, per_node, resources

ONE_EACH = Placement()


@dataclass(frozen=True, slots=True)
class Room:
    """The number of workers that could run."""

    resource: str
    """The resource of each worker, as Ray names it: CPU or GPU."""
    most: int
    """On empty nodes."""
    free: int
    """Next to the current load."""


def room(resource: str, wanted: Placement = ONE_EACH) -> Room:
    """Counted by node: half a CPU on each of two nodes is not enough for a worker."""
    from ray._private.state import available_resources_per_node  # Ray 2.60

    from training.recovery.nodes import alive

    free = available_resources_per_node()
    nodes = alive()
    each, strict = resources(wanted, resource), wanted.placement == "strict_spread"
    return Room(
        resource,
        sum(per_node(each, node.resources, strict_spread=strict) for node in nodes),
        sum(per_node(each, free.get(node.id, {}), strict_spread=strict) for node in nodes),
    )


def found(
    gpu: str,
    workers: int,
    when_lacking: str,
    of: str = "workers",
    flag: str = "",
    wanted: Placement = ONE_EACH,
) -> Room:
    """The room for this many workers, by the resources of each. Prints what is missing, or exits
    with it.

    `of` is the job's name for them, and its setting, unless that is `flag`.
    """
    there = room("GPU", wanted)
    if (takes := resource(gpu, workers, there.most)) != there.resource:
        there = room(takes, wanted)
    report_missing(there, workers, when_lacking, of, flag, wanted)
    return there


def resource(gpu: str, workers: int, gpus: int) -> str:
    """The resource of a worker. Exits if GPUs are requested and the cluster has none."""
    if gpu == "true" and not gpus:
        raise SystemExit(
            "gpu=true, and the cluster has no GPU: gpu=false trains on CPUs, "
            "or scale up a worker group that has GPUs first"
        )
    return "GPU" if gpu == "true" or (gpu == "auto" and gpus >= workers) else "CPU"


def report_missing(
    there: Room,
    workers: int,
    when_lacking: str,
    of: str = "workers",
    flag: str = "",
    wanted: Placement = ONE_EACH,
) -> None:
    """Print what is missing for this number of workers; exit if that is an error."""
    if there.free >= workers:
        return
    flag = flag or of
    each = resources(wanted, there.resource)
    if each == resources(ONE_EACH, there.resource) and wanted.placement != "strict_spread":
        lack = f"{workers} {of} take {workers} {there.resource}, and the cluster has {there.most}"
    else:
        listed = ", ".join(
            f"{amount / 2**30:.3g} GiB of memory" if name == "memory" else f"{amount:g} {name}"
            for name, amount in each.items()
        )
        where = " on a node of its own" if wanted.placement == "strict_spread" else ""
        lack = (
            f"{workers} {of} take {listed} each{where}, and the cluster has room for {there.most}"
        )
    todo = f"launch with --{flag} {there.free}" if there.free else "end what runs there"
    if there.most >= workers:
        lack += f" ({there.free} free)"
    else:
        todo = f"launch with --{flag} {there.most}, or " if there.most else ""
        todo += "scale the cluster up"
    if when_lacking == "fail":
        raise SystemExit(f"{lack}: {todo}")
    print(f"{lack}: waiting for the rest ({todo})", flush=True)
