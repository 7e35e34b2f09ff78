"""Every change that can be asked of a cluster, from a key or a verb alike, with its audit line."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from cockpit import audit
from cockpit.backends.protocol import Backend, Scaled
from cockpit.drills import kill
from cockpit.launch import submission
from cockpit.launch.submission import LaunchSpec
from cockpit.model.drill import Drill
from cockpit.model.run import Job
from cockpit.sources.dashboard import Dashboard


class ClusterActions:
    """The coroutines run on the loop of the session whose backend this is."""

    def __init__(self, backend: Backend, clock: Callable[[], float] = time.time) -> None:
        self._backend = backend
        self._clock = clock

    async def kill(self, plan: kill.KillPlan) -> Drill:
        return await kill.kill(self._backend, plan, self._clock)

    async def scale(
        self,
        group: str,
        replicas: int,
        *,
        min_replicas: int | None = None,
        max_replicas: int | None = None,
        remove: Sequence[str] = (),
    ) -> Scaled:
        done = await self._backend.scale(
            group, replicas, min_replicas=min_replicas, max_replicas=max_replicas, remove=remove
        )
        self._record("scale", group, before=str(done.before), after=str(done.after))
        return done

    async def launch(self, name: str, settings: Mapping[str, str]) -> str:
        """Submit a bundled job; its submission id."""
        return (await self.submit(submission.bundled_spec(name, settings))).id

    async def submit(self, spec: LaunchSpec) -> Job:
        async with self._dashboard() as dashboard:
            job = await submission.launch(dashboard, spec)
        self._record("launch", job.id, after=job.entrypoint)
        return job

    async def resume(self, job_id: str) -> Job:
        """Submit the job again under a new id; it goes on from its last checkpoint."""
        async with self._dashboard() as dashboard:
            job = await submission.resume(dashboard, job_id)
        self._record("resume", job_id, after=job.id)
        return job

    async def stop_job(self, job_id: str) -> None:
        async with self._dashboard() as dashboard:
            await submission.stop(dashboard, job_id)
        self._record("stop", job_id)

    async def delete_job(self, job_id: str) -> None:
        async with self._dashboard() as dashboard:
            await submission.delete(dashboard, job_id)
        self._record("delete", job_id)

    def _dashboard(self) -> Dashboard:
        return Dashboard(self._backend.dashboard)

    def _record(self, action: str, target: str, *, before: str = "", after: str = "") -> None:
        audit.record(action, self._backend.ref, target, before=before, after=after)
