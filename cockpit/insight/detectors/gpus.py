"""GPUs that are idle, unused, throttled or faulty.

    idle        a GPU of the run whose use was below 5 % in every record of the last two minutes,
                while the run steps
    unused      GPUs of running nodes that no rank holds, during a run (information only)
    throttled   NVML's reasons hold the clocks down, other than being idle or at its power limit,
                which a busy GPU normally is
    Xid, ECC    reported by the driver: which Xids end a context is in NVIDIA's "XID Errors" (r555)

A fatal Xid that DCGM reports is left out if the rank on the same GPU reports a fatal one itself.
"""

from __future__ import annotations

from functools import lru_cache

from cockpit.format import in_seconds, plural, verb
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.insight.metrics.progress import gpus_of, live_ranks, newest_s, stepping_since
from cockpit.insight.metrics.robust_statistics import window
from cockpit.model.alert import Finding, Severity
from cockpit.store.gpus import of_placement
from cockpit.store.run import RankView, RunView
from cockpit.store.store import Store

FATAL_XIDS = frozenset({48, 62, 63, 64, 74, 79, 92, 94, 95, 109, 110, 119, 120, 136, 140, 143})
"""Memory faults that were not corrected, NVLink, off the bus, the GSP: the GPU needs a reset."""
_HARMLESS = ("idle", "power cap", "applications clocks", "application clocks", "display", "sync")
_FEWEST = 5


def find(store: Store, run: RunView, limits: Thresholds) -> list[Finding]:
    """`idle-gpu`, `gpu-throttled`, `gpu-xid`, `gpu-ecc` by rank; `unused-gpus` of the cluster."""
    since, newest = stepping_since(run), newest_s(run)
    found: list[Finding] = []
    for rank in live_ranks(run):
        sample = rank.sample
        if sample is None:
            continue
        where = _where(rank)
        if sample.gpu_xid is not None:
            found.append(_xid(run, f"rank {rank.rank}", where, sample.gpu_xid))
        if sample.gpu_ecc_errors:
            found.append(_ecc(run, rank.rank, where, sample.gpu_ecc_errors))
        if since is None or newest is None or newest - since < limits.warmup_s:
            continue
        if sample.gpu_throttle and (why := harmful(sample.gpu_throttle)):
            found.append(_throttled(run, rank.rank, where, why))
        use = sample.gpu_utilization_percent
        if use is not None and use < limits.idle_gpu_percent and _idle(rank, since, limits):
            found.append(_idle_finding(run, rank.rank, where, limits))
    found += _dcgm(store, run)
    return found + _unused(store, run)


@lru_cache(maxsize=64)
def harmful(reasons: str) -> str:
    """Those of NVML's reasons, a comma between, that should not be on a busy GPU."""
    reported = (reason.strip() for reason in reasons.split(","))
    return ", ".join(
        reason for reason in reported if reason and not any(w in reason.lower() for w in _HARMLESS)
    )


def _where(rank: RankView) -> str:
    placed = rank.placement
    if placed is None:
        return ""
    gpu = f" GPU {placed.gpus[0]}" if len(placed.gpus) == 1 else ""
    return f" (node {placed.node_ip}{gpu})"


def _idle(rank: RankView, since_s: float, limits: Thresholds) -> bool:
    series = rank.curves["gpu_utilization_percent"]
    newest = series.times[-1] if len(series) else 0.0
    begin = newest - limits.idle_gpu_s
    _, values = window(series, begin)
    whole = len(series) > len(values) and begin >= since_s
    return whole and len(values) >= _FEWEST and max(values) < limits.idle_gpu_percent


def _idle_finding(run: RunView, rank: int, where: str, limits: Thresholds) -> Finding:
    return Finding(
        "idle-gpu",
        f"rank {rank}",
        Severity.WARNING,
        f"The GPU of rank {rank}{where} is idle",
        f"Below {limits.idle_gpu_percent:g} % utilization in every record of the last "
        f"{in_seconds(limits.idle_gpu_s)}, while the run makes steps",
        "Check that the model is on the GPU that Ray assigned to the rank",
        run.id,
    )


def _throttled(run: RunView, rank: int, where: str, why: str) -> Finding:
    return Finding(
        "gpu-throttled",
        f"rank {rank}",
        Severity.WARNING,
        f"The GPU of rank {rank}{where} is slowed down: {why}",
        "NVML's clocks event reasons, without idle and the power limit",
        "Look at its temperature, fans and power supply; cordon the node if it lasts",
        run.id,
    )


def _xid(run: RunView, subject: str, where: str, xid: int) -> Finding:
    fatal = xid in FATAL_XIDS
    return Finding(
        "gpu-xid",
        subject,
        Severity.CRITICAL if fatal else Severity.WARNING,
        f"The driver reports Xid {xid} on the GPU of {subject}{where}",
        "The GPU needs a reset or a repair" if fatal else "Most often the application's own fault",
        "Cordon the node and move the run" if fatal else "Look at the rank's log",
        run.id,
    )


def _ecc(run: RunView, rank: int, where: str, errors: int) -> Finding:
    return Finding(
        "gpu-ecc",
        f"rank {rank}",
        Severity.WARNING,
        f"The GPU of rank {rank}{where} has {plural(errors, 'uncorrected memory error')}",
        "Counted by NVML since the driver was loaded",
        "Cordon the node, reset the GPU, and watch its row remapping",
        run.id,
    )


def _dcgm(store: Store, run: RunView) -> list[Finding]:
    fatal = [gpu for gpu in store.gpu_activity if gpu.xid in FATAL_XIDS]
    reported = _with_fatal_xid(store, run) if fatal else set()
    return [
        _xid(run, f"GPU {gpu.gpu} of {gpu.node}", "", gpu.xid)
        for gpu in fatal
        if gpu.xid is not None and (gpu.node, gpu.gpu) not in reported
    ]


def _with_fatal_xid(store: Store, run: RunView) -> set[tuple[str, str]]:
    """DCGM's node and GPU of the ranks that report a fatal Xid, as far as they can be matched."""
    pods, nodes = list(store.pods.values()), list(store.nodes.values())
    namespace = store.ref.namespace if store.ref else ""
    found: set[tuple[str, str]] = set()
    for rank in live_ranks(run):
        if rank.sample is None or rank.sample.gpu_xid not in FATAL_XIDS or rank.placement is None:
            continue
        gpu = of_placement(rank.placement, store.gpu_activity, pods, nodes, namespace)
        if gpu is not None:
            found |= {(gpu.node, number) for number in gpu.gpu.split(",")}
    return found


def unused(store: Store) -> int:
    """GPUs of running nodes that no rank of an active run holds."""
    there = sum(
        int(node.resources.get("GPU", len(node.gpus)))
        for node in store.nodes.values()
        if node.alive
    )
    assigned = sum(
        gpus_of(run)
        for run in store.runs.values()
        if run.attempt is not None and run.attempt.ended_s is None and not run.state.is_over
    )
    return max(0, there - assigned)


def _unused(store: Store, run: RunView) -> list[Finding]:
    free = unused(store)
    if not free or not gpus_of(run) or stepping_since(run) is None:
        return []
    return [
        Finding(
            "unused-gpus",
            "cluster",
            Severity.INFO,
            f"{plural(free, 'GPU')} {verb(free, 'are')} held by no rank",
            f"The living nodes offer them to Ray, the run holds {gpus_of(run)}",
            "Use them for the run, or scale the group down",
            run.id,
        )
    ]
