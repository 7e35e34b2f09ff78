"""Nodes that fail more than chance explains are suspect, and what a drill did is not held against
them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cockpit.insight.nodes.incident import EVENTS, Incident, Kind, RunIncidents, read
from cockpit.insight.nodes.suspects import chance, suspects
from cockpit.model.alert import Alert, Finding, Severity
from cockpit.model.cluster import (
    ClusterHealth,
    ClusterRef,
    KubernetesNode,
    Node,
    NodeType,
    Pod,
    PodPhase,
)
from cockpit.model.drill import Drill, DrillRecord, Verdict
from cockpit.model.event import (
    AlertRaised,
    AttemptEnded,
    AttemptStarted,
    ClusterSeen,
    DrillEnded,
    DrillInjected,
    Event,
    NodesListed,
    PodsListed,
    RunSeen,
)
from cockpit.model.run import Placement, RunState
from cockpit.recorder.reading.library import Library
from cockpit.recorder.reading.node_history import NodeHistory
from cockpit.recorder.writing.recorder import Recorder

REF = ClusterRef("kuberay", "trainer", "ml", "prod")
RUN = "run-1"
DIED = "rank 1: its process died (killed, out of memory, or crashed)"


def pod(number: int, *, restarts: int = 0, phase: PodPhase = PodPhase.RUNNING) -> Pod:
    """Pod w-N with address 10.0.0.N on K8s node gpu-N."""
    return Pod(
        f"w-{number}",
        "gpu",
        NodeType.WORKER,
        phase,
        phase is PodPhase.RUNNING,
        f"10.0.0.{number}",
        restarts=restarts,
        host=f"gpu-{number}",
    )


def pods(at_s: float, *listed: Pod) -> Event:
    return PodsListed(at_s=at_s, source="backend", pods=listed or (pod(0), pod(1)))


def started(at_s: float, attempt: int = 1, run_id: str = RUN) -> Event:
    return AttemptStarted(
        at_s=at_s,
        source="telemetry",
        run_id=run_id,
        attempt=attempt,
        placements=tuple(Placement(n, f"node-{n}", f"10.0.0.{n}", 100 + n) for n in (0, 1)),
    )


def ended(at_s: float, reason: str = DIED, run_id: str = RUN) -> Event:
    return AttemptEnded(at_s=at_s, source="telemetry", run_id=run_id, attempt=1, reason=reason)


def nodes(at_s: float, *, alive: bool = True, why: str = "") -> Event:
    return NodesListed(
        at_s=at_s,
        source="ray",
        nodes=(
            Node("a", "10.0.0.0", "w-0", is_head=False, alive=True),
            Node("b", "10.0.0.1", "w-1", is_head=False, alive=alive, state_message=why),
        ),
    )


def alert(at_s: float, kind: str, subject: str, what: str = "", why: str = "") -> Event:
    finding = Finding(kind, subject, Severity.WARNING, what or subject, why, run_id=RUN)
    return AlertRaised(at_s=at_s, source="alerts", alert=Alert(f"{kind}-{at_s}", finding, at_s))


def kinds(*events: Event) -> list[tuple[str, Kind]]:
    return [(one.node, one.kind) for one in read(events).incidents]


def test_a_dead_rank_counts_against_its_kubernetes_node() -> None:
    found = read([pods(0), started(10), ended(3_610), started(3_620, 2), pods(7_220)])
    assert [(one.node, one.kind, one.run_id) for one in found.incidents] == [
        ("gpu-1", Kind.RANK_DIED, RUN)
    ]
    assert found.node_hours == pytest.approx({"gpu-0": 2.0, "gpu-1": 2.0})


@pytest.mark.parametrize(
    "reason",
    [
        "rank 0: lost a peer: Connection closed by peer",
        "rank 1: RuntimeError: shapes do not match",
        "preempted: the node of rank 1 is reclaimed",
        "",
    ],
)
def test_victims_and_errors_of_the_code_count_against_no_node(reason: str) -> None:
    assert kinds(pods(0), started(10), ended(100, reason)) == []


def test_a_node_that_dies_with_its_pod_and_rank_is_one_incident() -> None:
    assert kinds(
        pods(0),
        nodes(1),
        started(10),
        pods(100, pod(0), pod(1, phase=PodPhase.FAILED)),
        nodes(103, alive=False, why="Unexpected termination: health check failed"),
        ended(104),
    ) == [("gpu-1", Kind.POD_FAILED)]


@pytest.mark.parametrize(
    "why",
    [
        "Expected termination: received SIGTERM",
        "Terminated due to preemption: reclaimed by the cloud",
        "Terminated due to idle (no Ray activity): 60 s",
    ],
)
def test_a_node_that_was_drained_reclaimed_or_scaled_down_did_not_die(why: str) -> None:
    assert kinds(pods(0), nodes(1), nodes(100, alive=False, why=why)) == []


def test_a_node_that_a_new_head_does_not_know_did_not_die() -> None:
    assert kinds(pods(0), nodes(1), NodesListed(at_s=100, source="ray", nodes=())) == []
    died = nodes(100, alive=False, why="Unexpected termination: health check failed")
    assert kinds(pods(0), nodes(1), died, died) == [("gpu-1", Kind.NODE_DIED)]


def test_a_restarted_container_counts_and_a_pod_of_a_reused_name_does_not() -> None:
    assert kinds(pods(0), pods(50, pod(0, restarts=1), pod(1))) == [("gpu-0", Kind.POD_FAILED)]


def test_alerts_of_a_rank_count_against_its_node() -> None:
    assert kinds(
        pods(0),
        started(10),
        alert(100, "gpu-xid", "rank 0", "The driver reports Xid 79 on the GPU of rank 0"),
        alert(200, "straggler", "rank 1"),
        alert(300, "gpu-throttled", "rank 1"),
        alert(400, "loss-spike", "rank 0"),
    ) == [("gpu-0", Kind.GPU_ERROR), ("gpu-1", Kind.SLOW), ("gpu-1", Kind.THROTTLED)]


def test_only_a_hang_that_a_node_can_cause_counts() -> None:
    frozen = alert(
        100,
        "hang",
        f"run {RUN}",
        "Rank 1 is stopped; rank 0 has waited for it in all_reduce for 31 s.",
        "frozen, confidence high: no answer",
    )
    of_code = alert(
        900,
        "hang",
        f"run {RUN}",
        "Rank 1 never called all_reduce #3",
        "skipped collective, confidence high: x",
    )
    assert kinds(pods(0), started(10), frozen, of_code) == [("gpu-1", Kind.HANG)]


@pytest.mark.parametrize("number", ["d-1", "d-1.1", "d-1.1.2"])
def test_effects_of_a_drill_are_no_incidents(number: str) -> None:
    """Its record has one id, and each of its faults another one."""
    drill = Drill(number, "rank-kill", "w-1", (1,), 100.0, 0.0, RUN, 1)
    record = DrillRecord("d-1", "rank-kill", "trainer", 99.0, 150.0, Verdict.PASSED, "", (drill,))
    injected = DrillInjected(at_s=100, source="drill", drill=drill)
    over = DrillEnded(at_s=150, source="drill", record=record)
    assert kinds(pods(0), started(10), injected, ended(104), over) == []
    assert kinds(pods(0), started(10), injected, over, started(200, 2), ended(500)) == [
        ("gpu-1", Kind.RANK_DIED)
    ]


# -- suspects


def failed(node: str, count: int, kind: Kind = Kind.RANK_DIED) -> tuple[Incident, ...]:
    return tuple(Incident(node, kind, 1_000.0 * n, "it died", f"run-{n}") for n in range(count))


def test_more_failures_than_chance_explains_make_a_suspect() -> None:
    history = [
        RunIncidents(("", "", ""), failed("gpu-1", 3), {f"gpu-{n}": 10.0 for n in range(4)}),
        RunIncidents(("", "", ""), failed("gpu-2", 1), {}),
    ]
    (found,) = suspects(history)
    assert (found.node, found.score, found.last_s) == ("gpu-1", 6, 2_000.0)
    assert found.evidence == (
        "3 failures in 10.0 h with ranks (rank died × 3); other nodes: 1 in 30.0 h",
    )


def test_the_node_that_is_used_most_is_not_suspect_for_that() -> None:
    hours = {"gpu-1": 100.0, "gpu-2": 10.0}
    incidents = (*failed("gpu-1", 10), *failed("gpu-2", 1))
    assert suspects([RunIncidents(("", "", ""), incidents, hours)]) == []


def test_failures_everywhere_make_no_node_suspect() -> None:
    hours = {f"gpu-{n}": 10.0 for n in range(4)}
    incidents = tuple(one for n in range(4) for one in failed(f"gpu-{n}", 3))
    assert suspects([RunIncidents(("", "", ""), incidents, hours)]) == []


def test_a_gpu_error_is_enough_and_stands_above_slow_ranks() -> None:
    incidents = (
        *failed("gpu-1", 2, Kind.SLOW),
        *failed("gpu-2", 1, Kind.GPU_ERROR),
        *failed("gpu-3", 1, Kind.SLOW),
    )
    found = suspects([RunIncidents(("", "", ""), incidents, {})])
    assert [(one.node, one.evidence) for one in found] == [
        ("gpu-2", ("1 GPU error, the newest: it died",)),
        ("gpu-1", ("slow rank in 2 runs",)),
    ]


def test_node_condition_makes_a_suspect_and_a_deleted_node_is_left_out() -> None:
    nodes = [
        KubernetesNode("gpu-1", ready=True),
        KubernetesNode("gpu-2", ready=True, cordoned=True, problems=("KernelDeadlock",)),
        KubernetesNode("gpu-3", ready=False, reason="kubelet stopped posting node status"),
        KubernetesNode("gpu-4", ready=True, gpus=7.0, gpus_withdrawn=1.0),
    ]
    history = [RunIncidents(("", "", ""), failed("gpu-9", 1, Kind.GPU_ERROR), {})]
    found = suspects(history, nodes)
    assert [(one.node, one.evidence, one.cordoned) for one in found] == [
        ("gpu-3", ("now: not ready: kubelet stopped posting node status",), False),
        ("gpu-2", ("now: condition KernelDeadlock",), True),
        ("gpu-4", ("now: 1 of 8 GPUs withdrawn by their device plugin",), False),
    ]


def test_the_tail_of_the_poisson_distribution() -> None:
    # P(X >= 2 | 1) = 1 - 2/e
    assert chance(2, 1.0) == pytest.approx(0.2642411)
    assert chance(0, 3.0) == 1.0
    assert chance(3, 0.1) == pytest.approx(1.54653e-4, rel=1e-4)


# -- recordings


def recorded(library: Library, run_id: str, ref: ClusterRef) -> Path:
    path = library.path_of(run_id)
    recorder = Recorder(path, clock=lambda: 200.0)
    for event in (
        ClusterSeen(at_s=0.0, source="backend", ref=ref, health=ClusterHealth.READY),
        RunSeen(at_s=0.0, source="telemetry", run_id=run_id, name="fit", state=RunState.RUNNING),
        pods(1),
        started(10, run_id=run_id),
        ended(100, run_id=run_id),
    ):
        recorder.take(event)
    recorder.close()
    return path


def test_the_history_has_the_runs_of_one_cluster_and_follows_its_files(tmp_path: Path) -> None:
    library = Library(tmp_path)
    first = recorded(library, "r1", REF)
    recorded(library, "r2", ClusterRef("kuberay", "other", "ml", "prod"))
    damaged = library.path_of("r3")
    damaged.write_bytes(b"SQLite format 3\0" + bytes(200))
    history = NodeHistory(library)
    assert [[one.node for one in run.incidents] for run in history.of(REF)] == [["gpu-1"]]
    recorded(library, "r4", REF)
    assert len(history.of(REF)) == 2
    first.unlink()
    assert len(history.of(REF)) == 1


def test_reading_some_kinds_of_events_gives_them_in_order(tmp_path: Path) -> None:
    from cockpit.recorder.reading.recording import Recording

    path = recorded(Library(tmp_path), "r1", REF)
    with Recording.open(path) as recording:
        chosen = list(recording.of_kinds(PodsListed, AttemptEnded))
        assert [type(event) for event in chosen] == [PodsListed, AttemptEnded]
        every = [event for event in recording.events() if isinstance(event, EVENTS)]
        assert list(recording.of_kinds(*EVENTS)) == every


def test_the_same_alert_counts_against_the_node_of_each_attempt() -> None:
    def hung(at_s: float, rank: int) -> Event:
        finding = Finding(
            "hang", f"run {RUN}", Severity.CRITICAL, f"Rank {rank} sends no data.", "frozen, high"
        )
        return AlertRaised(at_s=at_s, source="alerts", alert=Alert("hang", finding, at_s))

    first, second = hung(50, 0), hung(150, 1)
    found = kinds(
        pods(0), started(10), first, first, ended(90, "its job is FAILED"), started(100, 2),
        first, second, second,
    )  # fmt: skip
    assert found == [("gpu-0", Kind.HANG), ("gpu-1", Kind.HANG)]
