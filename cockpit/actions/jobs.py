"""Launch jobs, and stop, delete or resume them, with a line in the audit log."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from cockpit.actions import audit
from cockpit.actions.audited import AuditedActions
from cockpit.backends.protocol import Change, RayJobSpec
from cockpit.config import file
from cockpit.launch import job, mlflow_server, rayjob, resubmit, submission
from cockpit.launch.job import BundledJob
from cockpit.launch.rayjob import RayJobOptions
from cockpit.launch.submission import LaunchSpec
from cockpit.model.error import NotAllowedError, UsageError
from cockpit.model.run import Job
from cockpit.sources.mlflow.settings import parse as mlflow_settings
from cockpit.sources.ray.dashboard import Dashboard

if TYPE_CHECKING:
    from cockpit.launch.flags import Launchable
    from cockpit.preflight.demand import Demand
    from cockpit.preflight.finding import Finding
    from cockpit.preflight.target import Target

ONCE = RayJobOptions()


class JobActions(AuditedActions):
    """Launch, check, stop, delete and resume jobs, over HTTP or as RayJobs."""

    def bundled_jobs(self) -> tuple[BundledJob, ...]:
        return job.bundled_jobs()

    def order(
        self, name: str, settings: Mapping[str, str], via: str = "job", line: str = ""
    ) -> Launchable:
        """A bundled job, or the command in `line`, with the flags in it. Raises UsageError."""
        from cockpit.launch import flags

        return flags.of_line(line, name, settings, via)

    async def launch(
        self, name: str, settings: Mapping[str, str], via: Literal["job", "rayjob"] = "job"
    ) -> str:
        """Launch a bundled job; its submission id, or the RayJob's name."""
        return await self.launch_order(self.order(name, settings, via))

    async def launch_order(self, made: Launchable) -> str:
        """Its submission id, or the RayJob's name."""
        if made.options is not None:
            return await self.submit_rayjob(made.spec, made.options)
        return (await self.submit(made.spec)).id

    def demand(self, spec: LaunchSpec) -> Demand:
        """What a job would need of the pods. Raises UsageError."""
        from cockpit.preflight.demand import demand

        return demand(spec)

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
        with self._audited(change):
            found = await checked()
        self._write(change)
        return found

    async def preflight_of_new_cluster(
        self,
        spec: LaunchSpec,
        options: RayJobOptions,
        *,
        timeout_s: float,
        read_only: bool = False,
    ) -> list[Finding]:
        """Check what can be known of the cluster that the RayJob would create. Creates nothing."""
        from cockpit.preflight.demand import demand
        from cockpit.preflight.preflight import check_new

        job = rayjob.rayjob_spec(spec, options)
        return await check_new(
            self._backend, demand(spec), job, timeout_s=timeout_s, read_only=read_only
        )

    async def submit(self, spec: LaunchSpec, log: Callable[[str], None] = lambda line: None) -> Job:
        """`log` as for `submission.launch`."""
        spec = self._with_mlflow(spec)
        change = self._of_cluster("launch", after=f"{spec.submission_id}: {spec.shown_command}")
        with self._audited(change):
            async with self._dashboard() as dashboard:
                job = await submission.launch(dashboard, spec, log)
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
        self.require_allowed()
        audit.require_writable()
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
        with self._audited(change):
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
        with self._audited(change):
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
            with self._audited(change):
                if action == "stop":
                    await self._backend.stop_rayjob(job.rayjob, uid=uid or job.rayjob_uid)
                else:
                    await self._backend.delete_rayjob(job.rayjob, uid=uid or job.rayjob_uid)
        else:
            change = self._of_cluster(action, job_id)
            with self._audited(change):
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
            driver = await submission.driver_resources(dashboard, made.driver)
        return await self._backend.create_rayjob(replace(made, driver=driver))

    def _dashboard(self) -> Dashboard:
        return Dashboard(self._backend.dashboard)
