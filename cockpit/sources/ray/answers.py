"""Parse the responses of the Ray dashboard (ray 2.60) into the model's structs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from msgspec import Struct

from cockpit.model.cluster import Gpu, Node
from cockpit.model.death import MemoryKill
from cockpit.model.decoding.value_range import bytes_of, count, moment_s
from cockpit.model.run import Job, JobStatus, RunState
from cockpit.model.secret import masked, masked_lines, masked_value
from cockpit.model.serve import Deployment, Replica
from cockpit.model.text import clean_lines, one_line
from cockpit.model.waiting import AutoscalerReport, Demand, PendingNode

MIB = 1024 * 1024
MESSAGE_CHARS = 24_000
"""Of a job's message. Ray's have the last 20,000 characters of a log (`job_manager.py`)."""
METADATA, VALUE_CHARS = 200, 20_000
"""Entries of a job's metadata, and characters of one: the user who submits a job chooses them, and
all are masked and shown."""
LARGEST = 3
"""The number of processes to keep, largest memory use first."""

# The dashboard turns every key to camelCase (message_to_dict), resource names with them. These two
# are Ray's own, and can be turned back; a custom name such as `my_disk` stays `myDisk`.
_RESOURCE_NAMES = {
    "objectStoreMemory": "object_store_memory",
    "node:InternalHead": "node:__internal_head__",
}


def nodes(answer: Any) -> tuple[Node, ...]:
    """`/nodes?view=summary`, the head first, then alive before dead, by address."""
    listed = [_node(raw) for raw in answer["data"]["summary"] if "nodeId" in raw["raylet"]]
    return tuple(sorted(listed, key=lambda n: (not n.is_head, not n.alive, n.ip, n.id)))


def addresses(answer: Any) -> frozenset[str]:
    """`/api/v0/nodes`: the addresses of the listed nodes."""
    return frozenset(one_line(str(raw["node_ip"])) for raw in answer["data"]["result"]["result"])


def is_dead(answer: Any) -> bool:
    """`/api/v0/nodes` for one node: whether the GCS knows that it has died."""
    return any(raw["state"] == "DEAD" for raw in answer["data"]["result"]["result"])


def autoscaler(answer: Any) -> AutoscalerReport:
    """`/api/cluster_status`; empty before the head's monitor has written its first report.

    Ray converts the keys of dictionaries, except of those in lists of lists: `gpu_worker` is
    `gpuWorker` in `pendingLaunches`, and unchanged in `pendingNodes` (`to_google_style` in
    ray/dashboard/utils.py).
    """
    data = answer["data"]
    status = data.get("clusterStatus") or {}
    report, load = status.get("autoscalerReport") or {}, status.get("loadMetricsReport") or {}
    demand = [
        Demand(((_shape(resources), 1),), count(times))
        for resources, times in load.get("resourceDemand") or ()
        if not any("_group_" in name for name in resources)  # its placement group has the room
    ]
    demand += [
        Demand(tuple((_shape(one), count(many)) for one, many in group["bundles"]), count(times))
        for group, times in load.get("pgDemand") or ()
    ]
    failures = [
        f"{one_line(kind)} at {one_line(ip)} ended" for ip, kind in report.get("failedNodes") or ()
    ]
    records = (report.get("nodeAvailabilitySummary") or {}).get("nodeAvailabilities") or {}
    for record in sorted(records.values(), key=lambda one: float(one["lastCheckedTimestamp"])):
        if why := record.get("unavailableNodeInformation"):
            reason = one_line(f"{why['category']}: {why['description']}")
            failures.append(f"{one_line(record['nodeType'])}: {reason}")
    types = report.get("nodeTypeMapping") or {}
    return AutoscalerReport(
        demand=tuple(demand),
        pending=tuple(
            PendingNode(one_line(ip), one_line(kind), one_line(state))
            for ip, kind, state in report.get("pendingNodes") or ()
        ),
        launching={
            one_line(kind): count(times)
            for kind, times in (report.get("pendingLaunches") or {}).items()
        },
        failures=tuple(failures),
        # Without an autoscaler, Ray makes up a type for each node, of its id.
        types={one_line(ip): one_line(kind) for ip, kind in types.items() if kind != f"node_{ip}"},
        error=_last_line(str(data.get("autoscalingError") or "")),
    )


def _shape(raw: Mapping[str, Any]) -> dict[str, float]:
    return {one_line(name): float(value) for name, value in raw.items()}


def _last_line(traceback: str) -> str:
    lines = [line for line in traceback.splitlines() if line.strip()]
    return one_line(lines[-1]) if lines else ""


def _node(raw: Mapping[str, Any]) -> Node:
    # The node's agent reports the numbers. They are missing until its first report (a few seconds),
    # and for a dead node; the fields in `raylet` come from the GCS.
    raylet = raw["raylet"]
    alive = raylet.get("state") == "ALIVE"
    memory = raw.get("mem") or []
    disk_used, disk_total = _disk(raw.get("disk")) if alive else (None, None)
    speed: list[Any] = (raw.get("networkSpeed") or []) if alive else []
    store_used, store_free = (
        bytes_of(raylet.get(f"objectStore{part}Memory") or 0) for part in ("Used", "Available")
    )
    has_store = alive and store_used + store_free > 0
    return Node(
        id=one_line(str(raylet["nodeId"])),
        ip=one_line(str(raylet.get("nodeManagerAddress") or raw.get("ip") or "")),
        hostname=one_line(str(raylet.get("nodeManagerHostname") or raw.get("hostname") or "")),
        is_head=bool(raylet.get("isHeadNode")),
        alive=alive,
        cpu_percent=_float(raw.get("cpu")) if alive else None,
        memory_used_bytes=int(memory[3]) if alive and len(memory) > 3 else None,
        memory_total_bytes=int(memory[0]) if memory else None,
        gpus=tuple(_gpu(gpu) for gpu in raw.get("gpus") or ()),
        resources={
            _RESOURCE_NAMES.get(name, one_line(name)): float(amount)
            for name, amount in (raylet.get("resourcesTotal") or {}).items()
        },
        state_message=one_line(str(raylet.get("stateMessage") or "")),
        disk_used_bytes=disk_used,
        disk_total_bytes=disk_total,
        sent_bytes_per_s=_float(speed[0]) if len(speed) > 1 else None,
        received_bytes_per_s=_float(speed[1]) if len(speed) > 1 else None,
        object_store_used_bytes=store_used if has_store else None,
        object_store_total_bytes=store_used + store_free if has_store else None,
    )


def _disk(raw: Any) -> tuple[int | None, int | None]:
    """Used and total bytes of the fullest disk; in a pod Ray reports one of a single byte."""
    disks = [(bytes_of(one["used"]), bytes_of(one["total"])) for one in (raw or {}).values()]
    sized = [(used, total) for used, total in disks if total > 1]
    return max(sized, key=lambda disk: disk[0] / disk[1]) if sized else (None, None)


def _gpu(raw: Mapping[str, Any]) -> Gpu:
    milliwatts = _float(raw.get("powerMw"))
    return Gpu(
        index=int(raw.get("index", 0)),
        name=one_line(str(raw.get("name", ""))),
        utilization_percent=_float(raw.get("utilizationGpu")),
        memory_used_bytes=_mib(raw.get("memoryUsed")),
        memory_total_bytes=_mib(raw.get("memoryTotal")),
        power_w=None if milliwatts is None else milliwatts / 1000,
        temperature_c=_float(raw.get("temperatureC")),
    )


def job(raw: Mapping[str, Any]) -> Job:
    """One job of `/api/jobs/`, without secrets: it is shown and recorded. Times there are in ms."""
    return Job(
        id=one_line(str(raw.get("submission_id") or raw.get("job_id") or "")),
        entrypoint=masked(one_line(str(raw.get("entrypoint") or ""), limit=2000)),
        status=JobStatus(raw["status"]),
        message=masked_lines(clean_lines(str(raw.get("message") or "")), MESSAGE_CHARS),
        started_s=_seconds(raw.get("start_time")),
        ended_s=_seconds(raw.get("end_time")),
        driver_node_id=one_line(str(raw.get("driver_node_id") or "")),
        metadata={
            one_line(str(key)): masked_value(str(key), clean_lines(str(value)), VALUE_CHARS)
            for key, value in islice((raw.get("metadata") or {}).items(), METADATA)
        },
        ray_id=one_line(str(raw.get("job_id") or "")),
    )


def memory_kills(answer: Any) -> tuple[MemoryKill, ...]:
    """`/api/v0/workers` of one exit type, newest first. Times there are in ms."""
    killed = [
        MemoryKill(
            worker_id=one_line(str(raw["worker_id"])),
            node_id=one_line(str(raw["node_id"])),
            node_ip=one_line(str(raw.get("ip") or "")),
            pid=int(raw["pid"]),
            at_s=_seconds(raw.get("end_time_ms")) or 0.0,
            detail=_kill_detail(str(raw.get("exit_detail") or "")),
        )
        for raw in answer["data"]["result"]["result"]
    ]
    return tuple(sorted(killed, key=lambda kill: (-kill.at_s, kill.worker_id)))


def _kill_detail(text: str) -> str:
    """Of the 40 lines of an exit detail: how full the node was, and the largest processes."""
    lines = text.splitlines()
    users = next((at for at, line in enumerate(lines) if "memory users" in line), len(lines))
    kept = [*lines[:2], *lines[users : users + 1 + LARGEST]]
    return masked(one_line("; ".join(one_line(line) for line in kept), limit=600))


def log_files(answer: Any) -> tuple[str, ...]:
    """`/api/v0/logs`: file names relative to the log directory, folders left out."""
    by_component = answer["data"]["result"]
    names = [str(name) for listed in by_component.values() for name in listed]
    # The name is also used to request the file: one that cannot be displayed is left out.
    return tuple(sorted(name for name in names if name.isprintable() and not name.endswith("/")))


def deployments(answer: Any) -> tuple[Deployment, ...]:
    """`/api/serve/applications/`: the deployments of all applications, by name."""
    found = [
        _deployment(app, raw)
        for _, app in sorted(answer["applications"].items())
        for _, raw in sorted(app["deployments"].items())
    ]
    return tuple(found)


def _deployment(app: Mapping[str, Any], raw: Mapping[str, Any]) -> Deployment:
    topology = app.get("deployment_topology") or {}
    is_ingress = topology.get("ingress_deployment") in (None, raw["name"])
    scaling = (raw.get("deployment_config") or {}).get("autoscaling_config")
    return Deployment(
        app=one_line(str(app["name"])),
        name=one_line(str(raw["name"])),
        status=one_line(str(raw["status"]), 40),
        message=_reason(str(raw.get("message") or app.get("message") or "")),
        route=one_line(str(app.get("route_prefix") or "")) if is_ingress else "",
        app_status=one_line(str(app["status"]), 40),
        deployed_s=moment_s(float(app.get("last_deployed_time_s") or 0.0)) or None,
        target=count(raw.get("target_num_replicas") or 0),
        bounds=(int(scaling["min_replicas"]), int(scaling["max_replicas"])) if scaling else None,
        replicas=tuple(
            _replica(replica)
            for name in ("replicas", "recent_dead_replicas")
            for replica in raw.get(name) or ()
        ),
    )


def _reason(message: str) -> str:
    """The first line; of a traceback also the last one, which names the exception."""
    lines = [line for line in (one_line(part, 600) for part in message.splitlines()) if line]
    ends = lines[:1] if len(lines) < 2 else [lines[0], lines[-1]]
    return masked(one_line(" ".join(ends), 600))


def _replica(raw: Mapping[str, Any]) -> Replica:
    return Replica(
        id=one_line(str(raw["replica_id"]), 80),
        state=one_line(str(raw["state"]), 40),
        node_ip=one_line(str(raw.get("node_ip") or "")),
        pid=int(raw.get("pid") or 0),
        started_s=moment_s(float(raw.get("start_time_s") or 0.0)) or None,
        log=_log_name(str(raw.get("log_file_path") or "").lstrip("/")),
    )


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


def _mib(value: Any) -> int | None:
    return None if value is None else int(float(value) * MIB)


def _seconds(milliseconds: Any) -> float | None:
    return None if not milliseconds else moment_s(float(milliseconds) / 1000)


class TrainWorker(Struct, frozen=True):
    """One rank of one attempt, as Ray Train's state actor has it."""

    rank: int
    node_id: str
    node_ip: str
    pid: int
    log_file: str
    """Relative to the log directory of its node; empty if Ray did not report it."""
    gpu_ids: tuple[int, ...] = ()


class TrainAttempt(Struct, frozen=True):
    status: str
    detail: str
    started_s: float
    ended_s: float | None
    workers: tuple[TrainWorker, ...]


class TrainRun(Struct, frozen=True):
    """One run of Ray Train V2; `attempts` oldest first."""

    id: str
    name: str
    job_id: str
    state: RunState
    detail: str
    started_s: float
    ended_s: float | None
    attempts: tuple[TrainAttempt, ...]
    submission_id: str = ""
    max_failures: int | None = None
    """Of its FailureConfig; Ray reports no other of its limits."""
    controller_log: str = ""
    """Relative to the log directory of the driver's node; empty when Ray does not report it."""


def train_runs(answer: Any) -> tuple[TrainRun, ...]:
    """`/api/train/v2/runs/v1`, newest first. Times there are nanoseconds."""
    listed = [_train_run(raw) for raw in answer["train_runs"]]
    return tuple(sorted(listed, key=lambda run: run.started_s, reverse=True))


def _train_run(raw: Mapping[str, Any]) -> TrainRun:
    status = str(raw.get("status"))
    attempts = [_train_attempt(attempt) for attempt in raw.get("attempts") or ()]
    return TrainRun(
        id=one_line(str(raw["id"])),
        name=one_line(str(raw.get("name") or "")),
        job_id=one_line(str(raw.get("job_id") or "")),
        state=RunState(status) if status in RunState.__members__ else RunState.UNKNOWN,
        detail=_detail(raw),
        started_s=moment_s(float(raw["start_time_ns"]) / 1e9),
        ended_s=moment_s(float(raw["end_time_ns"]) / 1e9) if raw.get("end_time_ns") else None,
        attempts=tuple(sorted(attempts, key=lambda attempt: attempt.started_s)),
        submission_id=one_line(str((raw.get("job_details") or {}).get("submission_id") or "")),
        max_failures=_max_failures(raw.get("run_settings")),
        controller_log=_log_name(raw.get("controller_log_file_path")),
    )


def _max_failures(settings: Any) -> int | None:
    found: Any = settings
    for name in ("run_config", "failure_config", "max_failures"):
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, int) else None


def _detail(raw: Mapping[str, Any]) -> str:
    """For a failed run it is a stack trace, whose last line is the error."""
    lines = [line for line in str(raw.get("status_detail") or "").splitlines() if line.strip()]
    return one_line(lines[-1] if lines and "Traceback" in lines[0] else " ".join(lines))


def _train_attempt(raw: Mapping[str, Any]) -> TrainAttempt:
    return TrainAttempt(
        status=one_line(str(raw.get("status"))),
        detail=_detail(raw),
        started_s=moment_s(float(raw["start_time_ns"]) / 1e9),
        ended_s=moment_s(float(raw["end_time_ns"]) / 1e9) if raw.get("end_time_ns") else None,
        workers=tuple(
            TrainWorker(
                rank=count(worker["world_rank"]),
                node_id=one_line(str(worker["node_id"])),
                node_ip=one_line(str(worker["node_ip"])),
                pid=int(worker["pid"]),
                log_file=_log_name(worker.get("log_file_path")),
                gpu_ids=tuple(int(gpu) for gpu in worker.get("gpu_ids") or ()),
            )
            for worker in raw.get("workers") or ()
        ),
    )


def _log_name(path: Any) -> str:
    """A path on a node, relative to its log directory."""
    return one_line(str(path or "").rpartition("/logs/")[2], limit=1000)
