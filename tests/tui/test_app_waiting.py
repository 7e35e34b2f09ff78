"""What waits in a queue, in the UI: the reason in each view, the chain in the description."""

from __future__ import annotations

import os

import pytest

from cockpit.model.cluster import ClusterHealth, NodeType, Pod, PodPhase, Resources, WorkerGroup
from cockpit.model.event import (
    ClusterSeen,
    Event,
    GroupsListed,
    JobsListed,
    PodsListed,
    QueuesListed,
    SourceHealth,
)
from cockpit.model.run import Job, JobStatus
from cockpit.model.waiting import QueueEntry, QuotaUse
from tests.tui.conftest import Open, Seen
from tests.tui.simulated import START_S, Simulation
from tests.tui.simulated_kubernetes import REF

SUMMARY = "queued 3rd in team-a: 4 of 8 GPUs in use"
QUOTA = QuotaUse("nvidia.com/gpu", "a100", used=4, nominal=8, room=4, most=8, asked=8)


def entry(kind: str, name: str) -> QueueEntry:
    return QueueEntry(
        "kueue",
        f"{name}-1a2b3",
        kind,
        name,
        "team-a",
        cluster_queue="gpus",
        position=3,
        waiting=5,
        quota=(QUOTA,),
        pods=3,
    )


def queued(*pods: Pod, health: ClusterHealth = ClusterHealth.SUSPENDED) -> Simulation:
    """A cluster and a RayJob of its own cluster in queue team-a."""
    at_s = START_S
    job = Job(
        "train-7",
        "python train.py",
        JobStatus.PENDING,
        SUMMARY,
        START_S,
        rayjob="train-7",
        deployment="Suspended",
        queue="team-a",
    )
    group = WorkerGroup("gpu", 2, 0, 0, 4, Resources(gpus=4), note=SUMMARY)
    script: list[Event] = [
        ClusterSeen(
            at_s=at_s, source="backend", ref=REF, health=health, message=SUMMARY, queue="team-a"
        ),
        GroupsListed(at_s=at_s, source="backend", groups=(group,)),
        PodsListed(at_s=at_s, source="backend", pods=pods),
        JobsListed(at_s=at_s, source="backend", jobs=(job,)),
        QueuesListed(
            at_s=at_s,
            source="backend",
            entries=(entry("RayCluster", REF.name), entry("RayJob", "train-7")),
        ),
    ]
    script += [
        SourceHealth(at_s=at_s + second, source="backend", ok=True) for second in range(0, 60, 2)
    ]
    return Simulation(script, REF)


def plain(seen: Seen) -> str:
    return " ".join(seen.text.split())


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_queue_is_the_reason_of_cluster_group_and_job(
    cockpit: Open, size: tuple[int, int]
) -> None:
    async with cockpit(simulation=queued(), at_s=10.0, size=size) as seen:
        await seen.sees(SUMMARY if size[0] > 80 else "queued 3rd in team-a: 4 of 8…")
        show(seen)
        await seen.press("5")
        await seen.sees("train-7", "PENDING")
        if size[0] > 80:
            await seen.sees(SUMMARY)
        show(seen)
        await seen.press("d")
        await seen.sees(f"Waits: {SUMMARY}", "3rd of 5 waiting in ClusterQueue gpus")
        show(seen)


async def test_pod_is_described_with_its_chain(cockpit: Open) -> None:
    reason = "no node has 4 free GPUs (0/4 nodes)"
    pod = Pod(
        "llm-train-gpu-worker-a",
        "gpu",
        NodeType.WORKER,
        PodPhase.PENDING,
        False,
        reason=reason,
        stage="node room",
        created_s=START_S,
    )
    simulation = queued(pod, health=ClusterHealth.STARTING)
    async with cockpit(simulation=simulation, at_s=10.0) as seen:
        await seen.press("4")
        await seen.sees("llm-train-gpu-worker-a")
        await seen.press("d")
        await seen.sees("Waits: queued 3rd in team-a", "node room", "pod llm-train-gpu-worker-a")
        show(seen)


async def test_unsuspend_warns_that_kueue_owns_the_cluster(cockpit: Open) -> None:
    async with cockpit(simulation=queued(), at_s=10.0) as seen:
        await seen.press("colon", *"unsuspend", "enter")
        await seen.until(lambda: "Kueue owns spec.suspend: queue team-a" in plain(seen))


async def test_scale_warns_that_kueue_starts_the_whole_cluster_again(cockpit: Open) -> None:
    async with cockpit(simulation=queued(health=ClusterHealth.READY), at_s=10.0) as seen:
        await seen.press("colon", *"scale gpu 3", "enter")
        await seen.sees("from 2 to 3", "The cluster is in queue team-a: Kueue deletes")


def show(seen: Seen) -> None:
    """Print the screen, for a person: pytest -s."""
    if os.environ.get("SHOW"):
        print(seen.text)
