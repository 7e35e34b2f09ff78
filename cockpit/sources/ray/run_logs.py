"""All logs of one run: their locations and last lines, from the dashboard's log API."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from msgspec import Struct, field

from cockpit.logs.types import Kind, Log
from cockpit.model.cluster import Node
from cockpit.model.error import CockpitError, NotAllowedError, UsageError
from cockpit.model.run import Job
from cockpit.model.text import one_line
from cockpit.sources.ray.answers import TrainRun, TrainWorker
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.log_follower import LINE_LIMIT_BYTES, LogFile

T = TypeVar("T")
_ERROR_FILE = re.compile(r"worker-.+-(\d{1,10})\.err", re.ASCII)

ATTEMPTS = 5
"""The newest attempts whose ranks are read: the error that ended one is in their logs."""
CONCURRENCY = 10
"""Requests at one time: as many connections as the client keeps open."""
APP, SYSTEM = "ray-train-app-controller", "ray-train-sys-controller"
"""Ray Train's controller writes two files, and reports the name of the first."""


class Place(Struct, frozen=True):
    log: Log
    file: LogFile


class Unread(Struct, frozen=True):
    """A log that cannot be read, and why."""

    name: str
    why: str


class RunLogs(Struct):
    """The locations of a run's logs."""

    title: str
    """The run, or its job if Ray Train does not list the run."""
    job_id: str = ""
    id: str = ""
    """Of the run, or of the job."""
    places: list[Place] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)


async def find(dashboard: Dashboard, name: str = "") -> RunLogs:
    """The logs of a run by its name or id, or of a job by its id; of the newest without a name.

    Raises UsageError when there is no such run or job.
    """
    runs, jobs, nodes = await asyncio.gather(
        dashboard.train_runs(), dashboard.jobs(), dashboard.nodes()
    )
    run, job = _chosen(runs, jobs, name)
    found = RunLogs(f"run {run.name}" if run else f"job {job.id}" if job else "")
    found.job_id = job.id if job else ""
    found.id = run.id if run else found.job_id
    alive = {node.id: node for node in nodes if node.alive}
    _driver(found, run, job)
    used = [worker.node_id for _, worker in _workers(run)]
    if run is not None and len(run.attempts) > ATTEMPTS:
        found.unread.append(
            Unread(f"ranks of {len(run.attempts) - ATTEMPTS} earlier attempts", "too many")
        )
    if job is not None:
        used.append(job.driver_node_id)
    if run is not None:
        await _ranks(dashboard, found, run, alive)
    _ray(found, nodes, frozenset(used))
    return found


def _chosen(
    runs: Sequence[TrainRun], jobs: Sequence[Job], name: str
) -> tuple[TrainRun | None, Job | None]:
    """A run without its job is one whose driver was not submitted."""
    by_id = {job.id: job for job in jobs}
    for run in runs:
        if not name or name in (run.id, run.name, run.submission_id, run.job_id):
            job = by_id.get(run.submission_id)
            newest = jobs[0] if jobs else None
            if name or newest is None or job is newest or not _is_newer(newest, run):
                return run, job
            break  # the newest job has no run of Ray Train
    if name in by_id or (not name and jobs):
        return None, by_id[name] if name else jobs[0]
    known = ", ".join(dict.fromkeys([run.name or run.id for run in runs] + list(by_id)))
    raise UsageError(
        f"There is no run or job {name!r}." if name else "There is no run or job.",
        f"Available: {known}." if known else "",
    )


def _is_newer(job: Job, run: TrainRun) -> bool:
    return (job.started_s or 0.0) > run.started_s and not job.status.is_over


def _workers(run: TrainRun | None) -> Iterator[tuple[str, TrainWorker]]:
    """Each rank of the newest ATTEMPTS with its name, the newest attempt first."""
    attempts = run.attempts[-ATTEMPTS:] if run is not None else ()
    left_out = len(run.attempts) - len(attempts) if run is not None else 0
    for index, attempt in reversed([*enumerate(attempts, left_out + 1)]):
        of = "" if attempt is attempts[-1] else f" (attempt {index})"
        for worker in sorted(attempt.workers, key=lambda worker: worker.rank):
            yield f"rank {worker.rank}{of}", worker


def _driver(found: RunLogs, run: TrainRun | None, job: Job | None) -> None:
    if job is None:
        found.unread.append(Unread("driver", "it was not submitted as a job: Ray keeps no log"))
        return
    if not job.driver_node_id:
        found.unread.append(Unread("driver", f"job {job.id} has no driver yet"))
        return
    file = LogFile(job.driver_node_id, f"job-driver-{job.id}.log", job.status.is_over)
    found.places.append(Place(Log(Kind.DRIVER, "driver"), file))
    if run is None or not run.controller_log:
        return
    # The controller's node is the driver's (ray.train.v2.api.data_parallel_trainer).
    names = {"controller": run.controller_log}
    if APP in run.controller_log:
        names["controller system"] = run.controller_log.replace(APP, SYSTEM)
    for name, path in names.items():
        file = LogFile(job.driver_node_id, path, run.state.is_over)
        found.places.append(Place(Log(Kind.CONTROLLER, name), file))


async def _ranks(
    dashboard: Dashboard, found: RunLogs, run: TrainRun, alive: dict[str, Node]
) -> None:
    """The log, the output, and the standard error of each rank."""
    workers = list(_workers(run))
    listed = {worker.node_id for _, worker in workers if worker.node_id in alive}
    errors: dict[tuple[str, int], str] = {}

    async def listing(node_id: str) -> None:
        try:
            names = await dashboard.log_files(node_id, "worker-*.err")
        except NotAllowedError:
            raise
        except CockpitError as error:
            found.unread.append(Unread(f"standard error on {alive[node_id].ip}", _why(error)))
            return
        errors.update({(node_id, pid): name for name in names if (pid := _pid(name)) is not None})

    await each(listed, listing)
    for name, worker in workers:
        over = run.state.is_over or "attempt" in name
        log = Log(Kind.RANK, name, worker.rank)
        if worker.node_id not in alive:
            found.unread.append(Unread(log.name, "its Ray node is dead, and its log with it"))
            continue
        if worker.log_file:
            found.places.append(Place(log, LogFile(worker.node_id, worker.log_file, over)))
        else:
            found.unread.append(Unread(log.name, "Ray has not reported its log file"))
        if file := errors.get((worker.node_id, worker.pid)):
            log = Log(Kind.RANK, f"{name} stderr", worker.rank)
            found.places.append(Place(log, LogFile(worker.node_id, file, over)))


def _pid(name: str) -> int | None:
    """Of `worker-ID-JOB-PID.err`."""
    found = _ERROR_FILE.fullmatch(name)
    return int(found[1]) if found else None


def _ray(found: RunLogs, nodes: Sequence[Node], used: frozenset[str]) -> None:
    """The raylets of the run's nodes, and the GCS."""
    addresses = Counter(node.ip for node in nodes)
    for node in nodes:
        if not (node.is_head or node.id in used):
            continue
        name = f"raylet {node.ip}"
        if addresses[node.ip] > 1:
            name += f" {node.id[:8]}"
        if not node.alive:
            found.unread.append(Unread(name, "its Ray node is dead"))
            continue
        file = LogFile(node.id, "raylet.out")
        found.places.append(Place(Log(Kind.RAYLET, name), file))
        if node.is_head:
            found.places.append(Place(Log(Kind.GCS, "gcs"), LogFile(node.id, "gcs_server.out")))


async def read_tails(
    dashboard: Dashboard,
    places: Sequence[Place],
    take: Callable[[int, Sequence[bytes]], None],
    *,
    lines: Callable[[Log], int],
) -> list[Unread]:
    """Read the last lines of each log, and pass them with the number of its place as they arrive.

    Returns what could not be read. Raises NotAllowedError.
    """
    unread: list[Unread] = []

    async def one(index: int) -> None:
        place = places[index]
        try:
            async with dashboard.stream_log(
                place.file.node_id,
                place.file.name,
                lines=lines(place.log),
                follow=False,
                limit_bytes=LINE_LIMIT_BYTES + 1,
                torn=True,
            ) as batches:
                async for batch in batches:
                    take(index, batch)
        except NotAllowedError:
            raise
        except CockpitError as error:
            unread.append(Unread(place.log.name, _why(error)))

    await each(range(len(places)), one)
    return unread


async def each(items: Iterable[T], call: Callable[[T], Awaitable[None]]) -> None:
    """Call it for all items, at most CONCURRENCY at one time; the first exception ends it."""
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await call(item)

    tasks = [asyncio.create_task(worker()) for _ in range(CONCURRENCY)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _why(error: CockpitError) -> str:
    return one_line(error.why or error.what)
