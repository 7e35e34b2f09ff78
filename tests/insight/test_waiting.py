"""Why something waits, as one chain: a case for each stage that can block."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from cockpit.insight.waiting.advice import resized_in_queue
from cockpit.insight.waiting.chain import (
    Facts,
    chain,
    cluster_chain,
    group_chain,
    job_chain,
    pod_chain,
)
from cockpit.insight.waiting.text import lines
from cockpit.model.cluster import (
    ClusterHealth,
    ClusterRef,
    NodeType,
    Pod,
    PodPhase,
    WorkerGroup,
)
from cockpit.model.event import (
    ClusterSeen,
    GroupsListed,
    Notice,
    PodsListed,
    QueuesListed,
)
from cockpit.model.run import Job, JobStatus
from cockpit.model.waiting import (
    AdmissionCheck,
    Chain,
    ClaimState,
    LinkState,
    QueueEntry,
    QueueState,
    QuotaUse,
    WaitStage,
)
from cockpit.store.store import Store

GPU = "nvidia.com/gpu"
SHORT = QuotaUse(GPU, "a100", used=4, nominal=8, room=4, most=8, asked=8)
ENTRY = QueueEntry(
    manager="kueue",
    workload="rayjob-train-1a2b3",
    owner_kind="RayJob",
    owner="train",
    queue="team-a",
    cluster_queue="gpus",
    position=3,
    waiting=5,
    quota=(SHORT,),
    pods=3,
)
ADMITTED = replace(ENTRY, state=QueueState.ADMITTED, position=None)
GROUP = replace(
    ENTRY,
    manager="volcano",
    workload="ray-demo-pg",
    owner_kind="RayCluster",
    owner="demo",
    cluster_queue="",
    state=QueueState.ADMITTED,
    running=0,
    quota=(),
)


def pod(name: str = "demo-gpu-worker-a", stage: str = "", reason: str = "", **more: Any) -> Pod:
    ready = stage == WaitStage.READY and not reason
    phase = PodPhase.RUNNING if stage == WaitStage.READY else PodPhase.PENDING
    return Pod(name, "gpu", NodeType.WORKER, phase, ready, reason=reason, stage=stage, **more)


def states(found: Chain) -> dict[str, str]:
    return {link.stage: link.state for link in found.links}


def text(found: Chain, stage: WaitStage) -> str:
    return next(link.text for link in found.links if link.stage is stage)


CASES: dict[str, tuple[Facts, WaitStage, str, str]] = {
    "behind others, no quota": (
        Facts(entry=ENTRY),
        WaitStage.QUOTA,
        "4 of 8 GPUs in use, it asks for 8 GPUs (flavor a100).",
        "queued 3rd in team-a: 4 of 8 GPUs in use",
    ),
    "more than the queue ever has": (
        Facts(entry=replace(ENTRY, quota=(replace(SHORT, asked=9),))),
        WaitStage.QUOTA,
        "4 of 8 GPUs in use, it asks for 9 GPUs, and the queue can never give more than 8 GPUs "
        "(flavor a100).",
        "queued 3rd in team-a: 4 of 8 GPUs in use",
    ),
    "quota of the cohort": (
        Facts(entry=replace(ENTRY, quota=(replace(SHORT, asked=16, room=12, most=16),))),
        WaitStage.QUOTA,
        "4 of 8 GPUs in use, it asks for 16 GPUs, 12 GPUs free with what it may borrow "
        "(flavor a100).",
        "queued 3rd in team-a: 4 of 8 GPUs in use",
    ),
    "quota that may not be read": (
        Facts(entry=replace(ENTRY, quota=(), position=1, message="4 more needed")),
        WaitStage.QUOTA,
        "Not reserved. Kueue: 4 more needed.",
        "queued 1st in team-a",
    ),
    "behind others in a strict queue": (
        Facts(entry=replace(ENTRY, strict=True, quota=(replace(SHORT, asked=2),))),
        WaitStage.POSITION,
        "3rd of 5 waiting in ClusterQueue gpus, priority 0 (computed from priority and creation "
        "time in this namespace). The queue is StrictFIFO: it waits for those before it, even if "
        "there is room for it.",
        "queued 3rd in team-a",
    ),
    "missing queue": (
        Facts(entry=replace(ENTRY, queue_problem="there is no LocalQueue team-a")),
        WaitStage.QUEUE,
        "There is no LocalQueue team-a.",
        "queued 3rd in team-a: there is no LocalQueue team-a",
    ),
    "evicted, being stopped": (
        Facts(
            entry=replace(
                ENTRY, state=QueueState.EVICTED, eviction="Preempted: for workload urgent"
            )
        ),
        WaitStage.QUEUE,
        "Workload rayjob-train-1a2b3 was evicted, and is being stopped: Preempted: for workload "
        "urgent.",
        "evicted from team-a, being stopped",
    ),
    "deactivated": (
        Facts(entry=replace(ENTRY, state=QueueState.INACTIVE, message="too many retries")),
        WaitStage.QUEUE,
        "Kueue has deactivated Workload rayjob-train-1a2b3: too many retries.",
        "deactivated in team-a",
    ),
    "admission check": (
        Facts(
            entry=replace(
                ENTRY,
                state=QueueState.RESERVED,
                checks=(AdmissionCheck("new-nodes", "Pending", "2 nodes requested"),),
            )
        ),
        WaitStage.CHECK,
        "New-nodes is Pending: 2 nodes requested.",
        "quota reserved in team-a, waits for check new-nodes",
    ),
    "label without a workload": (
        Facts(queue="team-a", suspended=True, desired=3),
        WaitStage.QUEUE,
        "Its label names queue team-a, but it has no workload in the queue.",
        "queue: Its label names queue team-a, but it has no workload in the queue",
    ),
    "suspended by a user": (
        Facts(suspended=True, desired=0),
        WaitStage.SUSPENDED,
        "spec.suspend is set.",
        "suspended: spec.suspend is set",
    ),
    "pods are refused": (
        Facts(desired=3, pods=[pod(stage="ready")], refused="quota team is used up"),
        WaitStage.PODS,
        "1 of 3 pods created: quota team is used up.",
        "pods: 1 of 3 pods created: quota team is used up",
    ),
    "gang without room": (
        Facts(
            entry=replace(GROUP, message="3/3 tasks in gang unschedulable"),
            pods=[pod(stage="node room", reason="cannot be scheduled")],
        ),
        WaitStage.GANG,
        "0 of 3 pods run; all of them start together. Volcano: 3/3 tasks in gang unschedulable.",
        "gang: 0 of 3 pods run; all of them start together. Volcano: 3/3 tasks in gang "
        "unschedulable",
    ),
    "no node has room": (
        Facts(entry=ADMITTED, pods=[pod(stage="node room", reason="no node has 2 free GPUs")]),
        WaitStage.NODE_ROOM,
        "No node has 2 free GPUs.",
        "node room: No node has 2 free GPUs",
    ),
    "claim is not bound": (
        Facts(
            pods=[pod(stage="volume", reason="cannot be scheduled", claims=("shared",))],
            claims=[ClaimState("shared", "Pending", "no storage class is set")],
        ),
        WaitStage.VOLUME,
        "Claim shared is Pending: no storage class is set.",
        "volume: Claim shared is Pending: no storage class is set",
    ),
    "volume cannot be mounted": (
        Facts(
            pods=[pod(reason="its containers are being created", host="node-1")],
            notices=[
                Notice(
                    at_s=2.0,
                    source="backend",
                    kind="Pod",
                    name="demo-gpu-worker-a",
                    reason="FailedMount",
                    message="mount of nfs timed out",
                )
            ],
        ),
        WaitStage.VOLUME,
        "Mount of nfs timed out.",
        "volume: Mount of nfs timed out",
    ),
    "image is being pulled": (
        Facts(
            pods=[pod(reason="its containers are being created", host="node-1")],
            notices=[
                Notice(
                    at_s=2.0,
                    source="backend",
                    kind="Pod",
                    name="demo-gpu-worker-a",
                    reason="Pulling",
                    message='Pulling image "train:1"',
                )
            ],
        ),
        WaitStage.IMAGE_PULL,
        'Pulling image "train:1".',
        'image pull: Pulling image "train:1"',
    ),
    "init container": (
        Facts(pods=[pod(stage="init container", reason="waits for the head's GCS")]),
        WaitStage.INIT,
        "Waits for the head's GCS.",
        "init container: Waits for the head's GCS",
    ),
    "one of two pods is not ready": (
        Facts(
            desired=2,
            pods=[
                pod("a", "ready"),
                pod("b", "ready", reason="crash loop, 3 restarts: exit code 1"),
            ],
        ),
        WaitStage.READY,
        "1 of 2 pods: b: crash loop, 3 restarts: exit code 1.",
        "ready: 1 of 2 pods: b: crash loop, 3 restarts: exit code 1",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_stage_that_blocks(case: str) -> None:
    facts, stage, message, summary = CASES[case]
    found = chain("job", "train", facts)
    assert found.blocking is not None
    assert (found.blocking.stage, found.blocking.text) == (stage, message)
    assert found.blocking.todo
    assert found.summary == summary
    # No stage is done after one of the pods' that blocks, and each has its place in the order.
    order = [list(WaitStage).index(link.stage) for link in found.links]
    assert order == sorted(order)
    assert all(lines(found))


def test_text_is_wrapped_inside_its_column() -> None:
    found = lines(chain("job", "train", CASES["more than the queue ever has"][0]), 60)
    assert max(map(len, found)) <= 60
    start = next(n for n, line in enumerate(found) if line.startswith("  quota"))
    assert found[start + 1].startswith(" " * 28)


def test_stages_after_the_blocking_one_come_later() -> None:
    found = states(chain("pod", "p", CASES["no node has room"][0]))
    assert found == {
        "queue": "done",
        "quota": "done",
        "node room": "blocking",
        "volume": "later",
        "image pull": "later",
        "init container": "later",
        "ready": "later",
    }


def test_containers_being_created_leave_the_volume_open() -> None:
    found = chain("pod", "p", Facts(pods=[pod(reason="its containers are being created")]))
    assert states(found)["volume"] == LinkState.UNKNOWN
    assert found.blocking is None


def test_ready_pod_waits_for_nothing() -> None:
    found = chain("pod", "p", Facts(entry=ADMITTED, pods=[pod(stage="ready", host="node-1")]))
    assert set(states(found).values()) == {"done"}
    assert (found.summary, text(found, WaitStage.NODE_ROOM)) == ("", "It is on node node-1.")


def test_missing_permission_leaves_the_queue_unknown() -> None:
    found = chain("job", "train", Facts(queue="team-a", missing=["you may not read workloads"]))
    (link,) = (link for link in found.links if link.stage is WaitStage.QUEUE)
    assert (link.state, link.text) == (LinkState.UNKNOWN, "you may not read workloads")
    assert "cockpit-queues-viewer" in link.todo


def test_reported_position_is_not_marked_as_computed() -> None:
    found = chain("job", "train", Facts(entry=replace(ENTRY, computed=False, priority=7)))
    assert text(found, WaitStage.POSITION) == "3rd of 5 waiting in ClusterQueue gpus, priority 7."


@pytest.fixture
def store() -> Store:
    """A cluster of one group, whose second worker has no node, and a RayJob in a queue."""
    made = Store()
    made.apply(
        ClusterSeen(
            at_s=1.0,
            source="backend",
            ref=ClusterRef("kuberay", "demo", "ml"),
            health=ClusterHealth.DEGRADED,
        )
    )
    group = WorkerGroup("gpu", desired=2, ready=1, min=0, max=4)
    made.apply(GroupsListed(at_s=1.0, source="backend", groups=(group,)))
    head = Pod("demo-head", "headgroup", NodeType.HEAD, PodPhase.RUNNING, True, stage="ready")
    pods = (head, pod("a", "ready"), pod("b", "node room", "no node has 2 free GPUs"))
    made.apply(PodsListed(at_s=1.0, source="backend", pods=pods))
    made.apply(QueuesListed(at_s=1.0, source="backend", entries=(ENTRY,)))
    return made


def test_chain_of_each_kind_from_the_store(store: Store) -> None:
    assert group_chain(store, "gpu").summary == (
        "node room: 1 of 2 pods: b: no node has 2 free GPUs"
    )
    assert cluster_chain(store).blocking == replace(
        group_chain(store, "gpu").links[1],
        text="1 of 3 pods: b: no node has 2 free GPUs.",
    )
    assert pod_chain(store, "a").blocking is None
    assert pod_chain(store, "b").summary == "node room: No node has 2 free GPUs"
    job = Job("train", "", JobStatus.PENDING, rayjob="train", queue="team-a")
    assert job_chain(store, job).summary == "queued 3rd in team-a: 4 of 8 GPUs in use"


@pytest.mark.parametrize(
    ("queue", "health", "warned"),
    [
        ("team-a", ClusterHealth.READY, True),
        ("team-a", ClusterHealth.SUSPENDED, False),
        ("", ClusterHealth.READY, False),
    ],
)
def test_plan_to_scale_names_the_queue_that_starts_the_cluster_again(
    store: Store, queue: str, health: ClusterHealth, warned: bool
) -> None:
    store.queue, store.health = queue, health
    assert any(queue in line for line in resized_in_queue(store)) is warned


def test_job_on_the_watched_cluster_waits_for_its_pods(store: Store) -> None:
    job = Job("other", "", JobStatus.PENDING, rayjob="other", cluster="demo")
    assert job_chain(store, job).summary == "node room: 1 of 3 pods: b: no node has 2 free GPUs"


def test_job_with_a_cluster_of_its_own_waits_for_that_one(store: Store) -> None:
    job = Job("other", "", JobStatus.PENDING, rayjob="other", cluster="other-x1")
    own = Store()
    ref = ClusterRef("kuberay", "other-x1", "ml")
    own.apply(ClusterSeen(at_s=1.0, source="backend", ref=ref, health=ClusterHealth.STARTING))
    own.apply(PodsListed(at_s=1.0, source="backend", pods=(pod("c", "image pull", "no image"),)))
    assert job_chain(store, job, own).summary == "image pull: 1 of 1 pod: c: no image"
