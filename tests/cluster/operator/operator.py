"""The complete operator: its watches and queues; it acts only after the first lists."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.cluster.operator.api import Api
from tests.cluster.operator.clusters import Clusters
from tests.cluster.operator.events import Events
from tests.cluster.operator.jobs import Jobs


async def run(kubeconfig: Path, namespace: str = "") -> None:
    """Until cancelled. An API server that is away for a while does not end it."""
    api = Api(kubeconfig)
    events = Events(api, "raycluster-controller")
    clusters = Clusters(api, events, namespace)
    job_events = Events(api, "rayjob-controller")
    jobs = Jobs(api, job_events, clusters, namespace)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(events.run())
            tasks.create_task(job_events.run())
            # In this order, since work on one kind looks at those before it.
            for mirror in (clusters.pods, clusters.services, clusters.clusters, jobs.jobs):
                tasks.create_task(mirror.run())
                await mirror.filled.wait()
    finally:
        await api.aclose()
