"""The Ray dashboard as typed calls. Every method may raise:

UnreachableError (no answer), NotAllowedError (token missing or wrong), MissingError (no such
thing) and AnswerError (Ray's own failure), all CockpitError.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from msgspec import Struct, field

from cockpit.format import in_seconds
from cockpit.model.cluster import Node
from cockpit.model.death import MemoryKill
from cockpit.model.driver import NOTHING_RESERVED, DriverResources
from cockpit.model.run import Job
from cockpit.model.serve import Deployment
from cockpit.model.text import one_line
from cockpit.model.waiting import AutoscalerReport
from cockpit.sources.polling.shared_call import SharedCall
from cockpit.sources.ray import answers
from cockpit.sources.ray.answers import TrainRun
from cockpit.sources.ray.http import AnswerError, DashboardClient, MissingError, NoDataError

if TYPE_CHECKING:
    from collections.abc import Callable


T = TypeVar("T")

MAX_TIMEOUT_S = 600.0
"""How long Ray may take to send a complete log file; by default Ray stops after 30 s."""
TAIL_S = 60.0
"""How long the last lines of a log may take in total."""
UPLOAD_TIMEOUT_S = 300.0
DEAD_WORKERS = 1_000
MOST_NODES = 10_000
"""Ray's own limit (RAY_MAX_LIMIT_FROM_API_SERVER in ray/util/state/common.py)."""
SUBMIT_TIMEOUT_S = 60.0


class Version(Struct, frozen=True):
    ray: str
    session: str


class Submission(Struct, frozen=True):
    """What `POST /api/jobs/` is given. The runtime environment names packages already there."""

    entrypoint: str
    submission_id: str
    working_dir: str = ""
    """A `gcs://` URI, or empty."""
    py_modules: Sequence[str] = ()
    env_vars: Mapping[str, str] = field(default_factory=dict)
    other_runtime_env: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the runtime environment, as Ray takes them: `pip`, `conda`, …"""
    metadata: Mapping[str, str] = field(default_factory=dict)
    driver: DriverResources = NOTHING_RESERVED


class Dashboard(DashboardClient):
    """Jobs, nodes, runs and logs, as one Ray dashboard has them."""

    @cached_property
    def _listing(self) -> SharedCall[tuple[Node, ...]]:
        return SharedCall(self._nodes)

    async def aclose(self) -> None:
        await self._listing.aclose()
        await super().aclose()

    async def version(self) -> Version:
        return _read(
            "/api/version",
            await self._http.ask("GET", "/api/version"),
            lambda raw: Version(str(raw["ray_version"]), str(raw.get("session_name", ""))),
        )

    async def nodes(self) -> tuple[Node, ...]:
        """All nodes of the session, dead ones too; one request however many there are.

        Calls at the same time share it: two sources begin with the nodes.
        """
        return await self._listing.result()

    async def _nodes(self) -> tuple[Node, ...]:
        # Without `nocache` Ray may return a cached response of any age (aiohttp_cache in
        # ray/dashboard/optional_utils.py): measured, 69 s.
        params = {"view": "summary", "nocache": "1"}
        raw = await self._http.ask("GET", "/nodes", params=params)
        return _read("/nodes", raw, answers.nodes)

    async def living_addresses(self) -> frozenset[str]:
        """The addresses of the living nodes, by the GCS: a twentieth of what `nodes` transfers."""
        params = {"limit": str(MOST_NODES), **_where("state", "ALIVE")}
        raw = await self._http.ask("GET", "/api/v0/nodes", params=params)
        return _read("/api/v0/nodes", raw, answers.addresses)

    async def node_is_dead(self, node_id: str) -> bool:
        """By the GCS. A node that it does not know is not dead."""
        params = {"limit": "1", **_where("node_id", node_id)}
        raw = await self._http.ask("GET", "/api/v0/nodes", params=params)
        return _read("/api/v0/nodes", raw, answers.is_dead)

    async def autoscaler(self) -> AutoscalerReport:
        """What Ray's autoscaler waits for, launches and fails to launch.

        Empty with its version 2, which reports to the GCS alone (`autoscaler/v2/monitor.py`).
        """
        path = "/api/cluster_status"
        return _read(path, await self._http.ask("GET", path), answers.autoscaler)

    async def jobs(self) -> tuple[Job, ...]:
        """All jobs, newest first."""
        raw = await self._http.ask("GET", "/api/jobs/")
        jobs = _read("/api/jobs/", raw, lambda raw: [answers.job(job) for job in raw])
        return tuple(sorted(jobs, key=lambda job: (job.started_s or 0.0, job.id), reverse=True))

    async def job(self, job_id: str) -> Job:
        """Raises MissingError when there is no such job."""
        path = _job_path(job_id)
        return _read(path, await self._http.ask("GET", path), answers.job)

    async def submit(self, submission: Submission) -> str:
        """The submission id. Raises AnswerError when it is taken or the request is bad."""
        runtime_env: dict[str, Any] = {
            **submission.other_runtime_env,
            "env_vars": dict(submission.env_vars),
        }
        if submission.working_dir:
            runtime_env["working_dir"] = submission.working_dir
        if submission.py_modules:
            runtime_env["py_modules"] = list(submission.py_modules)
        body: dict[str, Any] = {
            "entrypoint": submission.entrypoint,
            "submission_id": submission.submission_id,
            "runtime_env": runtime_env,
            "metadata": dict(submission.metadata),
            **submission.driver.as_fields(),
        }
        raw = await self._http.ask("POST", "/api/jobs/", body=body, timeout_s=SUBMIT_TIMEOUT_S)
        return _read("/api/jobs/", raw, lambda raw: str(raw["submission_id"]))

    async def submission(self, job_id: str) -> Submission:
        """Return the submission of a job, without its driver's resources (unknown to Ray).

        A driver that was not submitted has no submission id: AnswerError.
        """
        path = _job_path(job_id)
        return _read(path, await self._http.ask("GET", path), _submission)

    async def stop(self, job_id: str) -> bool:
        """Request a job's stop. Return False if it had already ended. Returns before it ends."""
        path = f"{_job_path(job_id)}/stop"
        raw = await self._http.ask("POST", path)
        return _read(path, raw, lambda raw: bool(raw["stopped"]))

    async def delete(self, job_id: str) -> bool:
        """Forget a job that is over."""
        path = _job_path(job_id)
        raw = await self._http.ask("DELETE", path)
        return _read(path, raw, lambda raw: bool(raw["deleted"]))

    async def train_runs(self) -> tuple[TrainRun, ...]:
        """Empty when no driver of this session has RAY_TRAIN_ENABLE_STATE_TRACKING=1."""
        path = "/api/train/v2/runs/v1"
        try:
            raw = await self._http.ask("GET", path)
        except AnswerError as error:
            if error.status == 500 and "not available" in error.why:
                return ()
            raise
        return _read(path, raw, answers.train_runs)

    async def deployments(self) -> tuple[Deployment, ...]:
        """Those of Ray Serve; empty when it does not run, or is not installed."""
        path = "/api/serve/applications/"
        try:
            raw = await self._http.ask("GET", path)
        except MissingError:
            return ()
        except AnswerError as error:
            if error.status == 501:  # ray/dashboard/modules/serve/serve_head.py
                return ()
            raise
        return _read(path, raw, answers.deployments)

    async def memory_kills(self) -> tuple[MemoryKill, ...]:
        """The workers that Ray's memory monitor has killed, as far as the GCS keeps the dead."""
        is_killed = _where("exit_type", "NODE_OUT_OF_MEMORY")
        params = {"detail": "1", "limit": str(DEAD_WORKERS), **is_killed}
        raw = await self._http.ask("GET", "/api/v0/workers", params=params)
        return _read("/api/v0/workers", raw, answers.memory_kills)

    async def reaches_prometheus(self) -> bool:
        """Whether Ray's Prometheus responds to Ray. Ray does not report its address."""
        try:
            await self._http.fetch("GET", "/api/prometheus_health")
        except AnswerError:
            return False
        return True

    async def has_package(self, name: str) -> bool:
        """Whether the package is on the cluster. Asking also keeps it from being collected."""
        try:
            await self._http.fetch("GET", f"/api/packages/gcs/{quote(name)}")
        except MissingError:
            return False
        return True

    async def upload_package(self, name: str, data: bytes) -> None:
        path = f"/api/packages/gcs/{quote(name)}"
        await self._http.fetch("PUT", path, body=data, timeout_s=UPLOAD_TIMEOUT_S)

    async def log_files(self, node_id: str, glob: str) -> tuple[str, ...]:
        """Names relative to the node's log directory, sorted."""
        params = {"node_id": node_id, "glob": glob}
        raw = await self._http.ask("GET", "/api/v0/logs", params=params)
        return _read("/api/v0/logs", raw, answers.log_files)

    @asynccontextmanager
    async def stream_log(
        self,
        node_id: str,
        filename: str,
        *,
        lines: int = -1,
        follow: bool = True,
        interval_s: float = 0.2,
        idle_s: float | None = None,
        limit_bytes: int = 1 << 16,
        torn: bool = False,
    ) -> AsyncIterator[AsyncGenerator[list[bytes], None]]:
        """Yield the last `lines` lines of a log file (-1: all), then with `follow` the new ones.

        Lines are yielded in lists, as they arrive, without their newline and cut at `limit_bytes`;
        text after the last newline only with `torn`, since it may be incomplete. Following does not
        end while Ray is healthy, even long after the writer has ended. `idle_s` without a byte
        raises NoDataError, and the response may also just end. Ray does not support offsets: to
        resume, request enough lines and drop known ones. Of the last lines alone, without
        `follow`, at most twice as many are read, and without `idle_s` NoDataError is raised after
        TAIL_S.
        """
        is_tail = lines > 0 and not follow
        params = {"node_id": node_id, "filename": filename, "lines": str(lines)}
        if follow:
            params |= {"interval": str(interval_s)}
        else:
            params |= {"timeout": str(int(MAX_TIMEOUT_S))}
        path = f"/api/v0/logs/{'stream' if follow else 'file'}"
        most = 2 * lines if is_tail else None
        try:
            async with (
                asyncio.timeout(TAIL_S if is_tail and idle_s is None else None),
                self._http.stream(path, params=params, idle_s=idle_s) as chunks,
                aclosing(_split_lines(chunks, limit_bytes=limit_bytes, torn=torn)) as split,
            ):
                yield split if most is None else _at_most(split, most)
        except TimeoutError as error:
            raise NoDataError(
                f"the log {one_line(filename)} is not read",
                f"its last {lines} lines did not come within {in_seconds(TAIL_S)}",
            ) from error


async def _at_most(
    batches: AsyncGenerator[list[bytes], None], most: int
) -> AsyncGenerator[list[bytes], None]:
    async for batch in batches:
        yield batch[:most]
        most -= len(batch)
        if most <= 0:
            return


def _submission(raw: Mapping[str, Any]) -> Submission:
    if not raw["submission_id"]:
        raise ValueError("this driver was not submitted as a job")
    runtime_env = raw.get("runtime_env") or {}
    return Submission(
        entrypoint=str(raw["entrypoint"]),
        submission_id=str(raw["submission_id"]),
        working_dir=str(runtime_env.get("working_dir") or ""),
        py_modules=tuple(str(uri) for uri in runtime_env.get("py_modules") or ()),
        env_vars={str(k): str(v) for k, v in (runtime_env.get("env_vars") or {}).items()},
        other_runtime_env={
            str(name): value
            for name, value in runtime_env.items()
            if name not in ("working_dir", "py_modules", "env_vars") and not name.startswith("_")
        },  # Ray's own begin with an underscore
        metadata={str(k): str(v) for k, v in (raw.get("metadata") or {}).items()},
    )


def _job_path(job_id: str) -> str:
    return f"/api/jobs/{quote(job_id, safe='')}"


def _where(column: str, value: str) -> dict[str, str]:
    """The parameters with which Ray's state API lists only rows with this value."""
    return {"filter_keys": column, "filter_predicates": "=", "filter_values": value}


def _read(path: str, raw: Any, parse: Callable[[Any], T]) -> T:
    """What `parse` makes of an answer; an answer of another shape is an AnswerError."""
    with understood(path):
        return parse(raw)


@contextmanager
def understood(path: str) -> Iterator[None]:
    """Parse an answer: one of another shape is an AnswerError."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise AnswerError(
            f"the Ray dashboard's answer on {path} is not understood",
            one_line(f"{type(error).__name__}: {error}"),
            "cockpit knows Ray 2.60's answers; check the cluster's version",
            status=200,
        ) from error


async def _split_lines(
    chunks: AsyncIterator[bytes], *, limit_bytes: int, torn: bool
) -> AsyncGenerator[list[bytes], None]:
    """Yield the lines that each chunk completes, without their newline; never an empty list.

    A line is cut at `limit_bytes`: at most the limit and one chunk are held in memory. `torn`: also
    yield bytes after the last newline as a line.
    """
    line_start = bytearray()
    async for chunk in chunks:
        *whole, rest = chunk.split(b"\n")
        if whole:
            line_start += whole[0][: limit_bytes - len(line_start)]
            whole[0] = bytes(line_start)
            if max(map(len, whole)) > limit_bytes:
                whole = [line[:limit_bytes] for line in whole]
            yield whole
            line_start.clear()
        line_start += rest[: limit_bytes - len(line_start)]
    if torn and line_start:
        yield [bytes(line_start)]
