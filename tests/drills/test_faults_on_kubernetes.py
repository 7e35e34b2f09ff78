"""Faults that only Kubernetes has, and those between its pods, for real."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.backends.kuberay.resources.fault import MARK
from cockpit.model.cluster import NodeType, Pod
from cockpit.model.drill import Verdict
from cockpit.session import builder
from cockpit.session.session import Session
from cockpit.store.store import Store
from tests.cluster.fixtures import RealCluster
from tests.drills.real_drill import conduct, plan

pytestmark = [pytest.mark.slow, pytest.mark.ray]


@pytest.fixture(scope="module")
def session(ray_on_kubernetes: RealCluster) -> Iterator[Session]:
    with builder.session_on(ray_on_kubernetes.backend()) as session:
        assert session.wait(
            lambda store: len(store.nodes) >= 2 and bool(store.kubernetes_nodes), 60.0
        )
        yield session
    ray_on_kubernetes.wait_ready(1)


@pytest.fixture(autouse=True)
def one_worker(ray_on_kubernetes: RealCluster, session: Session) -> None:
    ray_on_kubernetes.wait_ready(1)
    session.wait(lambda store: worker(store).ready and has_node(store, worker(store)), 60.0)


def worker(store: Store) -> Pod:
    found = [pod for pod in store.pods.values() if pod.node_type is NodeType.WORKER]
    return max(found, key=lambda pod: pod.created_s)


def has_node(store: Store, pod: Pod) -> bool:
    return any(node.ip == pod.ip and node.alive for node in store.nodes.values())


def in_pod(session: Session, pod: str, *argv: str) -> str:
    return session.call(session.backend.exec(pod, argv), 30.0).stdout


def test_a_partition_from_the_head_is_there_and_ends(session: Session, tmp_path: Path) -> None:
    pod = worker(session.store)
    tables: list[str] = []

    def look(store: Store) -> None:
        tables.append(in_pod(session, pod.name, "/usr/sbin/nft", "list", "tables"))

    asked = plan("network-partition", pod.name, peers="head", for_s=20, recover_s=1)
    record = conduct(session, asked, tmp_path, observe=look)
    assert "cockpit_drill" in tables[0]
    assert in_pod(session, pod.name, "/usr/sbin/nft", "list", "tables") == ""
    assert record.verdict is Verdict.PASSED, record


def test_packets_are_lost_and_then_no_more(session: Session, tmp_path: Path) -> None:
    pod = worker(session.store)
    rules: list[str] = []

    def look(store: Store) -> None:
        rules.append(in_pod(session, pod.name, "/usr/sbin/nft", "list", "ruleset"))

    asked = plan("network-loss", pod.name, peers="head", percent=20, for_s=600, recover_s=1)
    record = conduct(session, asked, tmp_path, observe=look, abort=True)
    assert record.verdict is Verdict.ABORTED, record
    assert "numgen random mod" in rules[0]
    assert "drop" in rules[0]
    assert in_pod(session, pod.name, "/usr/sbin/nft", "list", "tables") == ""


def test_a_pod_sends_no_faster_than_it_is_let(session: Session, tmp_path: Path) -> None:
    pod = worker(session.store)
    shapes: list[str] = []

    def look(store: Store) -> None:
        shapes.append(in_pod(session, pod.name, "/usr/sbin/tc", "qdisc", "show"))

    asked = plan("network-rate", pod.name, rate_kbit=5000, for_s=600, recover_s=1)
    record = conduct(session, asked, tmp_path, observe=look, abort=True)
    assert record.verdict is Verdict.ABORTED, record
    assert "rate 5Mbit" in shapes[0]
    assert "tbf" not in in_pod(session, pod.name, "/usr/sbin/tc", "qdisc", "show")


def test_network_delay_delays_packets_until_it_is_undone(session: Session, tmp_path: Path) -> None:
    pod = worker(session.store)
    head = next(pod for pod in session.store.pods.values() if pod.node_type is NodeType.HEAD)

    def connected_s() -> float:
        ask = (
            "import socket, time; began = time.monotonic();"
            f"socket.create_connection(('{head.ip}', 6379), 20); print(time.monotonic() - began)"
        )
        return float(in_pod(session, pod.name, "python", "-c", ask))

    took_s: list[float] = []

    def look(store: Store) -> None:
        took_s.extend(connected_s() for _ in range(3))

    asked = plan("network-delay", pod.name, delay_ms=150, for_s=600, recover_s=1)
    record = conduct(session, asked, tmp_path, observe=look, abort=True)
    assert record.verdict is Verdict.ABORTED, record
    assert min(took_s) >= 0.15
    assert min(connected_s() for _ in range(3)) < 0.15
    assert "netem" not in in_pod(session, pod.name, "/usr/sbin/tc", "qdisc", "show")
    assert "clsact" not in in_pod(session, pod.name, "/usr/sbin/tc", "qdisc", "show")


def test_a_policy_isolates_a_pod_and_is_removed(
    session: Session, ray_on_kubernetes: RealCluster, tmp_path: Path
) -> None:
    path = "/apis/networking.k8s.io/v1/namespaces/ml/networkpolicies"
    api = ray_on_kubernetes.testbed.plane
    seen: list[int] = []

    def look(store: Store) -> None:
        (policy,) = api.ask("GET", path)["items"]
        chosen = policy["spec"]["podSelector"]["matchLabels"]
        pods = [
            pod["metadata"]["name"]
            for pod in ray_on_kubernetes.pods()
            if chosen.items() <= pod["metadata"]["labels"].items()
        ]
        assert pods == [worker(store).name]
        seen.append(len(pods))

    asked = plan("network-isolate", for_s=600, recover_s=1)
    conduct(session, asked, tmp_path, observe=look, abort=True)
    assert seen == [1]
    assert api.ask("GET", path)["items"] == []
    assert not any(MARK in pod["metadata"]["labels"] for pod in ray_on_kubernetes.pods())


def test_an_evicted_pod_waits_while_its_node_is_cordoned(session: Session, tmp_path: Path) -> None:
    before = worker(session.store)

    def look(store: Store) -> None:
        assert session.wait(lambda s: s.kubernetes_nodes[before.host].cordoned, 20.0)

    asked = plan("evict", before.name, grace_s=1, for_s=6)
    record = conduct(session, asked, tmp_path, observe=look)
    assert record.verdict is Verdict.PASSED, record
    assert session.wait(lambda s: not s.kubernetes_nodes[before.host].cordoned, 20.0)
    assert worker(session.store).name != before.name
    ready_s = record.recoveries[0].pod_ready_s
    assert ready_s is not None
    assert ready_s > 6, "no pod could be placed before the node took pods again"


def test_a_preempted_node_drains_and_then_dies(session: Session, tmp_path: Path) -> None:
    before = worker(session.store)
    record = conduct(session, plan("spot-preemption", before.name, notice_s=5), tmp_path)
    assert record.verdict is Verdict.PASSED, record
    removed_s = record.recoveries[0].pod_gone_s
    assert removed_s is not None
    assert removed_s >= 4.0, "it had its notice"
    assert worker(session.store).name != before.name


def test_a_pod_is_deleted_with_its_grace(session: Session, tmp_path: Path) -> None:
    before = worker(session.store)
    record = conduct(session, plan("pod-delete", before.name, grace_s=2), tmp_path)
    assert record.verdict is Verdict.PASSED, record
    assert worker(session.store).name != before.name
    assert record.recoveries[0].pod_ready_s is not None


def test_a_scale_down_is_taken_back(session: Session, tmp_path: Path) -> None:
    before = worker(session.store)

    def look(store: Store) -> None:
        assert session.wait(lambda s: s.groups["gpu"].desired == 0, 20.0)

    began = time.time()
    record = conduct(session, plan("scale-down", before.name, for_s=5), tmp_path, observe=look)
    assert record.verdict is Verdict.PASSED, record
    assert session.wait(lambda s: s.groups["gpu"].desired == 1, 20.0)
    assert time.time() - began > 5
