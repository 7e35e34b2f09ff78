"""The Ray nodes in the view of the nodes: memory, object store, disk and network."""

from __future__ import annotations

from msgspec.structs import replace

from cockpit.insight.nodes.suspects import suspects
from cockpit.model.cluster import (
    CONNECTING,
    ClusterHealth,
    ClusterRef,
    KubernetesNode,
    PodTraffic,
)
from cockpit.model.event import (
    ClusterSeen,
    KubernetesNodesListed,
    NodesListed,
    PodTrafficListed,
)
from cockpit.model.tracking import PodRefs
from cockpit.store.selectors import pods_without_traffic
from cockpit.tui.views.nodes.rows import ray_rows
from tests.tui.conftest import Open, Seen
from tests.tui.simulated import GIB, START_S


def filled(seen: Seen) -> None:
    """The disk of the head is nearly full; its object store is not."""
    store = seen.app.store
    head, *others = store.nodes.values()
    head = replace(
        head,
        disk_used_bytes=95 * GIB,
        disk_total_bytes=100 * GIB,
        object_store_used_bytes=GIB,
        object_store_total_bytes=4 * GIB,
        received_bytes_per_s=3_500_000.0,
        sent_bytes_per_s=0.0,
    )
    nodes = (head, *(replace(other, alive=False) for other in others))
    store.apply(NodesListed(at_s=START_S + 60, source="ray", nodes=nodes))
    seen.app.tick()


async def test_pressure_and_traffic_of_ray_nodes_are_shown(cockpit: Open) -> None:
    for size in ((80, 24), (200, 50)):
        async with cockpit(size=size) as seen:
            filled(seen)
            await seen.press("9")
            await seen.sees("Ray nodes · 3", "demo-workers-2", "!95 %", "25 %", "dead")
            await seen.sees("3.3 MiB/s", "0 B/s")


async def test_dead_node_is_called_as_the_pod_that_was_killed(cockpit: Open) -> None:
    async with cockpit() as seen:
        store = seen.app.store
        killed = replace(store.pods["demo-workers-2"], ended_s=START_S + 60)
        store.pods[killed.name] = killed
        dead = replace(next(iter(store.nodes.values())), alive=False, ip=killed.ip, hostname="vm")
        store.apply(NodesListed(at_s=START_S + 60, source="ray", nodes=(dead,)))
        assert ray_rows(store)[0].cells[0].text == "demo-workers-2"


async def test_nearly_full_disk_is_marked_by_more_than_a_colour(cockpit: Open) -> None:
    async with cockpit() as seen:
        filled(seen)
        head = ray_rows(seen.app.store)[0]
        [disk] = [cell for cell in head.cells if cell.text.startswith("!")]
        assert disk.style == "warning"


async def test_without_nodes_the_reason_is_shown(cockpit: Open) -> None:
    async with cockpit(at_s=1) as seen:
        await seen.press("9")
        await seen.sees("No Ray nodes yet: waiting for the dashboard.")


async def test_hosts_are_listed_as_nodes_and_one_that_has_not_answered_is_not_suspect(
    cockpit: Open,
) -> None:
    async with cockpit(at_s=1) as seen:
        hosts = ClusterRef("ssh", "lab", context="/etc/hosts.toml")
        lost = "not reached"
        nodes = (
            KubernetesNode("host-0", ready=True, cpus=64),
            KubernetesNode("host-1", ready=False, reason=CONNECTING),
            KubernetesNode("host-2", ready=False, reason=lost),
        )
        state = ClusterHealth.UNKNOWN
        seen.app.store.apply(ClusterSeen(at_s=START_S, source="backend", ref=hosts, health=state))
        await seen.press("9")
        await seen.sees("Hosts · 0", "No hosts yet: connecting.")
        seen.app.store.apply(KubernetesNodesListed(at_s=START_S, source="backend", nodes=nodes))
        seen.app.tick()
        await seen.sees("Hosts · 3", "waiting", CONNECTING, "not ready", lost)
        assert [one.node for one in suspects([], nodes)] == ["host-2"]


async def test_traffic_that_ray_does_not_report_is_that_of_the_kubelet_with_a_mark(
    cockpit: Open,
) -> None:
    for size, reason in (((80, 24), ""), ((200, 50), "* measured by the kubelet")):
        async with cockpit(size=size) as seen:
            filled(seen)
            store = seen.app.store
            head, *others = store.nodes.values()
            # As in a pod without an interface whose name begins with `e`.
            silent = replace(others[0], received_bytes_per_s=0.0, sent_bytes_per_s=0.0, alive=True)
            nodes = (head, silent, *others[1:])
            store.apply(NodesListed(at_s=START_S + 60, source="ray", nodes=nodes))
            pod = next(pod.name for pod in store.pods.values() if pod.ip == silent.ip)
            measured = (PodTraffic(pod, 99.9 * 1024**2, 1_500.0),)
            store.apply(PodTrafficListed(at_s=START_S + 60, source="prometheus", pods=measured))
            seen.app.tick()
            await seen.press("9")
            await seen.sees("3.3 MiB/s", "*99.9 MiB/s", "*1.5 KiB/s", reason)


async def test_only_living_nodes_on_kubernetes_without_traffic_are_queried(cockpit: Open) -> None:
    async with cockpit() as seen:
        store = seen.app.store
        head, one, two = store.nodes.values()
        nodes = (
            replace(head, received_bytes_per_s=10.0, sent_bytes_per_s=0.0),
            replace(one, received_bytes_per_s=None, sent_bytes_per_s=None),
            replace(two, alive=False),
        )
        store.apply(NodesListed(at_s=START_S + 60, source="ray", nodes=nodes))
        assert pods_without_traffic(store) == PodRefs(), "not on Kubernetes"
        store.ref = ClusterRef("kuberay", "demo", "ml", "lab")
        pod = next(pod.name for pod in store.pods.values() if pod.ip == one.ip)
        assert pods_without_traffic(store) == PodRefs("ml", frozenset({pod}))
