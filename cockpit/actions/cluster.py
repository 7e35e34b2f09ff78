"""Change a cluster, from a key or a verb, with a line in the audit log.

A change is recorded twice: on this host in the audit log, also when it failed, and on the object,
if the cluster supports it (`Backend.announce`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, Self, TypeVar

from cockpit.actions import audit
from cockpit.backends.protocol import Backend, Change, ExecResult, RayJobSpec, Scaled, Terminal
from cockpit.config import file
from cockpit.launch import job, mlflow_server, rayjob, resubmit, submission
from cockpit.launch.job import BundledJob
from cockpit.launch.rayjob import RayJobOptions
from cockpit.launch.submission import LaunchSpec
from cockpit.model.clock import server_time
from cockpit.model.error import CockpitError, NotAllowedError, UsageError
from cockpit.model.event import Event, Notice
from cockpit.model.run import Job
from cockpit.model.scale import ScaleRequest
from cockpit.model.secret import masked
from cockpit.model.text import one_line
from cockpit.sources.mlflow.settings import parse as mlflow_settings
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.profiling import Process, RayTools

if TYPE_CHECKING:
    from cockpit.preflight.demand import Demand
    from cockpit.preflight.finding import Finding
    from cockpit.preflight.target import Target
    from cockpit.session.session import Session
    from cockpit.sources.ray.flamegraph import Profile

T = TypeVar("T")
SHELL = ("/bin/sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash || exec sh")
"""The command of an interactive shell in a pod."""

ONCE = RayJobOptions()
CLUSTER_KINDS = {"kuberay": "RayCluster"}
"""The name of a cluster by kind; `Cluster` for the others."""


class ClusterActions:
    """Coroutines must run on the loop of the session that owns this backend.

    `jobs` returns the known jobs: which of them a RayJob submitted. `emit` is called with each
    requested change, as a Notice of the source `user`, which is recorded. `refusal`: why changes
    are not allowed; empty when they are.
    """

    def __init__(
        self,
        backend: Backend,
        clock: Callable[[], float] = server_time,
        jobs: Callable[[], Mapping[str, Job]] = dict,
        emit: Callable[[Event], None] | None = None,
        refusal: str = "",
    ) -> None:
        self._backend = backend
        self._emit = emit
        self._clock = clock
        self._jobs = jobs
        self._refusal = refusal

    @classmethod
    def on(cls, session: Session) -> Self:
        return cls(session.backend, session.clock, lambda: session.store.jobs, session.dispatch)

    async def scale(self, request: ScaleRequest) -> Scaled:
        group, numbers = request.group, [("replicas", request.replicas)]
        limits = [("min", request.min_replicas), ("max", request.max_replicas)]
        wanted = ", ".join(f"{n} {number}" for n, number in numbers + limits if number is not None)
        with self._noting_failure(self._of_cluster("scale", after=f"{group}: {wanted}")):
            done = await self._backend.scale(request)
        without = f" without {', '.join(request.remove)}" if request.remove else ""
        bounds = "".join(f", {name} {number}" for name, number in limits if number is not None)
        after = f"{group}: {done.after}{bounds}{without}"
        await self._done(self._of_cluster("scale", f"{group}: {done.before}", after))
        return done

    async def suspend(self, suspended: bool, *, uid: str = "") -> None:
        """Remove all pods of the cluster, or create them again; `uid` as in `ScaleRequest`."""
        before_after = ("running", "suspended") if suspended else ("suspended", "running")
        change = self._of_cluster("suspend" if suspended else "unsuspend", *before_after)
        with self._noting_failure(change):
            await self._backend.suspend(suspended, uid=uid)
        await self._done(change)

    async def cordon(self, node: str, cordoned: bool, *, uid: str = "") -> None:
        """Keep new pods off a node, or let them on again; `uid` as in `ScaleRequest`."""
        before_after = ("schedulable", "cordoned") if cordoned else ("cordoned", "schedulable")
        change = Change("cordon" if cordoned else "uncordon", "Node", node, *before_after)
        with self._noting_failure(change):
            await self._backend.cordon(node, cordoned, uid=uid)
        await self._done(change)

    async def exec(self, pod: str, argv: Sequence[str]) -> ExecResult:
        """Run a command in a pod and wait for its end."""
        change = Change("exec", "Pod", pod, after=argv[0])
        with self._noting_failure(change):
            done = await self._backend.exec(pod, argv)
        self._write(change)
        return done

    async def attach(
        self, pod: str, argv: Sequence[str], *, tty: bool, rows: int = 24, columns: int = 80
    ) -> Terminal:
        """The same with its streams open. Only the program is recorded: its arguments may hold
        secrets.
        """
        change = Change("exec", "Pod", pod, after=argv[0])
        with self._noting_failure(change):
            terminal = await self._backend.attach(pod, argv, tty=tty, rows=rows, columns=columns)
        self._write(change)
        return terminal

    async def stack(self, process: Process, *, native: bool = False) -> str:
        """The stack of each thread of a rank's process; as for `RayTools.stack`."""
        return await self._inspect(
            "stack", process, lambda tools: tools.stack(process, native=native)
        )

    async def cpu_profile(
        self, process: Process, seconds: int, *, idle: bool = False, native: bool = False
    ) -> Profile:
        return await self._inspect(
            "profile",
            process,
            lambda tools: tools.cpu_profile(process, seconds, idle=idle, native=native),
        )

    async def memory_profile(self, process: Process, seconds: int) -> bytes:
        return await self._inspect(
            "memory profile", process, lambda tools: tools.memory_profile(process, seconds)
        )

    async def _inspect(
        self, action: str, process: Process, use: Callable[[RayTools], Awaitable[T]]
    ) -> T:
        """Each of these tools pauses or slows the live process, so it is in the audit log."""
        change = Change(action, "Process", str(process))
        with self._noting_failure(change):
            async with RayTools(self._backend.dashboard) as tools:
                found = await use(tools)
        self._write(change)
        return found

    async def manifest(self, kind: str, name: str) -> str:
        """The object as YAML. It is only read: allowed in read-only mode, and not in the log."""
        return await self._backend.manifest(kind, name)

    async def describe(self, kind: str, name: str) -> str:
        """The object and its events as text; otherwise as `manifest`."""
        return await self._backend.describe(kind, name)

    def bundled_jobs(self) -> tuple[BundledJob, ...]:
        return job.bundled_jobs()

    async def launch(
        self, name: str, settings: Mapping[str, str], via: Literal["job", "rayjob"] = "job"
    ) -> str:
        """Launch a bundled job; its submission id, or the RayJob's name."""
        spec = submission.bundled_spec(name, settings)
        if via == "rayjob":
            return await self.submit_rayjob(spec)
        return (await self.submit(spec)).id

    def demand(self, name: str, settings: Mapping[str, str]) -> Demand:
        """What a bundled job would need of the pods. Raises UsageError."""
        from cockpit.preflight.demand import demand

        return demand(submission.bundled_spec(name, settings))

    async def preflight(
        self,
        target: Target,
        demand: Demand,
        *,
        timeout_s: float,
        read_only: bool = False,
        between_pods: bool = False,
    ) -> list[Finding]:
        """Check the pods that a job would use; `read_only`: without writing to its storage.

        `between_pods`: measure the network between them as well, which slows the runs on them.
        Raises NotAllowedError for this in read-only mode.
        """
        from cockpit.preflight.preflight import check

        async def checked() -> list[Finding]:
            return await check(
                self._backend,
                target,
                demand,
                timeout_s=timeout_s,
                read_only=read_only,
                between_pods=between_pods,
            )

        if read_only and between_pods:
            raise NotAllowedError(
                "The network between the pods is not measured.",
                "That slows the runs on them, and this is read-only mode.",
            )
        effects = []
        if demand.storage and not read_only:
            effects.append(f"a file in {demand.storage}, and removed")
        if between_pods:
            effects.append("all-reduce between pods")
        if not effects:
            return await checked()
        change = self._of_cluster("preflight", after="; ".join(effects))
        with self._noting_failure(change):
            found = await checked()
        self._write(change)
        return found

    async def submit(self, spec: LaunchSpec) -> Job:
        spec = self._with_mlflow(spec)
        change = self._of_cluster("launch", after=f"{spec.submission_id}: {spec.shown_command}")
        with self._noting_failure(change):
            async with self._dashboard() as dashboard:
                job = await submission.launch(dashboard, spec)
        await self._done(change)
        return job

    async def submit_and_resubmit(
        self,
        spec: LaunchSpec,
        times: int,
        log: Callable[[str], None],
        on_submit: Callable[[str], None] = lambda job_id: None,
    ) -> Job:
        """Until the job is over; it is sent again when the cluster has lost it (`resubmit`)."""
        spec = self._with_mlflow(spec)
        before = spec.submission_id

        def note(job_id: str) -> None:
            nonlocal before
            self._write(self._of_cluster("resubmit", before, f"{job_id}: {spec.shown_command}"))
            before = job_id
            on_submit(job_id)

        async with self._dashboard() as dashboard:
            return await resubmit.submit_and_resubmit(dashboard, spec, times, log, on_submit=note)

    async def submit_rayjob(self, spec: LaunchSpec, options: RayJobOptions = ONCE) -> str:
        """Make a RayJob resource of the job; the resource's name."""
        spec = self._with_mlflow(spec)
        made = rayjob.rayjob_spec(spec, options)
        change = Change("launch", "RayJob", made.name, after=spec.shown_command)
        with self._noting_failure(change):
            name = await self._create(spec, made)
        await self._done(change)
        return name

    def _with_mlflow(self, spec: LaunchSpec) -> LaunchSpec:
        """Raises UsageError for an invalid `[mlflow]`."""
        settings = mlflow_settings(file.read().tables.get("mlflow", {}), os.environ)
        return mlflow_server.with_mlflow(spec, settings, self._backend.ref.backend)

    async def resume(self, job_id: str) -> Job:
        """Submit the job again under a new id; it continues from its last checkpoint."""
        change = self._of_cluster("resume", job_id)
        with self._noting_failure(change):
            self._require_no_rayjob_of_its_own(job_id)
            async with self._dashboard() as dashboard:
                job = await submission.resume(dashboard, job_id)
        await self._done(self._of_cluster("resume", job_id, job.id))
        return job

    async def stop_job(self, job_id: str, *, uid: str = "") -> None:
        """Stop the job, whether it was submitted over HTTP or by a RayJob.

        `uid`: of the RayJob in the plan; without it, of the RayJob that is known now.
        """
        await self._end("stop", job_id, uid)

    async def delete_job(self, job_id: str, *, uid: str = "") -> None:
        """Delete a job from Ray's list; for a RayJob its resource and the cluster that it created.

        `uid` as for `stop_job`.
        """
        await self._end("delete", job_id, uid)

    async def _end(self, action: Literal["stop", "delete"], job_id: str, uid: str) -> None:
        job = self._rayjob(job_id)
        if job is not None:
            change = Change(action, "RayJob", job.rayjob, before=job.deployment or job.status.value)
            with self._noting_failure(change):
                if action == "stop":
                    await self._backend.stop_rayjob(job.rayjob, uid=uid or job.rayjob_uid)
                else:
                    await self._backend.delete_rayjob(job.rayjob, uid=uid or job.rayjob_uid)
        else:
            change = self._of_cluster(action, job_id)
            with self._noting_failure(change):
                async with self._dashboard() as dashboard:
                    await (submission.stop if action == "stop" else submission.delete)(
                        dashboard, job_id
                    )
        await self._done(change)

    def _rayjob(self, name: str) -> Job | None:
        """Return the RayJob with this job id or resource name."""
        jobs = self._jobs()
        job = jobs.get(name)
        if job is not None:
            return job if job.rayjob else None
        return next((job for job in jobs.values() if job.rayjob == name), None)

    def _require_no_rayjob_of_its_own(self, name: str) -> None:
        job = self._rayjob(name)
        if job is not None and job.cluster != self._backend.ref.name:
            raise UsageError(
                f"RayJob {job.rayjob} ran on a cluster of its own that was deleted with its code.",
                todo="Launch it again: cockpit launch --via rayjob --own-cluster …",
            )

    async def _create(self, spec: LaunchSpec, made: RayJobSpec) -> str:
        if made.own_cluster:
            return await self._backend.create_rayjob(made)
        async with self._dashboard() as dashboard:
            await rayjob.provide(dashboard, spec)
        return await self._backend.create_rayjob(made)

    def _dashboard(self) -> Dashboard:
        return Dashboard(self._backend.dashboard)

    def _of_cluster(self, action: str, before: str = "", after: str = "") -> Change:
        ref = self._backend.ref
        kind = CLUSTER_KINDS.get(ref.backend, "Cluster")
        return Change(action, kind, ref.name, before=before, after=after)

    @contextmanager
    def _noting_failure(self, change: Change) -> Iterator[None]:
        """Open the audit log before the change that is made inside, and record its failure."""
        self.require_allowed()
        audit.require_writable()
        try:
            yield
        except CockpitError as error:
            self._write(change, error)
            raise
        except asyncio.CancelledError:
            self._write(change, CockpitError("interrupted: the change may have been made"))
            raise

    def require_allowed(self) -> None:
        """Raises NotAllowedError where nothing may be changed."""
        if self._refusal:
            raise NotAllowedError("Nothing can be changed here.", self._refusal)

    async def _done(self, change: Change) -> None:
        self._write(change)
        await self._backend.announce(change)

    def _write(self, change: Change, error: CockpitError | None = None) -> None:
        unwritten = audit.record(
            change.action,
            self._backend.ref,
            change.name,
            kind=change.kind,
            before=change.before,
            after=change.after,
            error=one_line(str(error)) if error else "",
        )
        what = one_line(masked(f"{change.action} {change_text(change)}: {error or 'done'}"))
        reason = "Failed" if error else "Asked"
        self._notice(change.kind, change.name, reason, what, warning=error is not None)
        if unwritten:
            self._notice(change.kind, change.name, "AuditLog", one_line(unwritten))

    def _notice(
        self, kind: str, name: str, reason: str, message: str, *, warning: bool = True
    ) -> None:
        if self._emit is None:
            return
        self._emit(
            Notice(
                at_s=self._clock(),
                source="user",
                kind=kind,
                name=name,
                reason=reason,
                message=message,
                warning=warning,
            )
        )


def change_text(change: Change) -> str:
    """`before → after`, of the known values."""
    return " → ".join(part for part in (change.before, change.after) if part)
