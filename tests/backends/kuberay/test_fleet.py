"""All RayClusters of a context, for a choice and for the fleet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import yaml

from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.api.credentials import Credentials
from cockpit.backends.kuberay.api.kubeconfig import read
from cockpit.backends.kuberay.resources.clusters import FleetSource, list_clusters
from cockpit.model.cluster import ClusterHealth
from cockpit.model.error import UsageError
from cockpit.model.event import ClustersListed, Event, SourceHealth
from tests.backends.kuberay.by_hand import Place
from tests.cluster.raycluster import Group

READ = {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["list", "watch"]}


def source(kubeconfig: Path) -> FleetSource:
    return FleetSource("here", lambda: Credentials(read([kubeconfig]).context()))


async def until(events: AsyncIterator[Event], found: Callable[[Event], bool]) -> Event:
    async with asyncio.timeout(15):
        async for event in events:
            if found(event):
                return event
    raise AssertionError("the source ended by itself")


async def test_clusters_of_one_name_are_listed_with_their_namespaces(place: Place) -> None:
    other = Place.new(place.testbed)
    place.ready_cluster(workers=2)
    other.cluster(groups=[Group(replicas=3, gpus=8, hosts=2, max=3)], suspend=True)
    client = KubeClient(Credentials(read([place.testbed.kubeconfig]).context()))
    try:
        everywhere = await list_clusters(client, None)
        here = await list_clusters(client, place.namespace)
    finally:
        await client.aclose()
    ours = {row.ref.namespace: row for row in everywhere}
    assert {place.namespace, other.namespace} <= set(ours)
    assert [(row.ref.name, row.health, row.desired, row.ready) for row in here] == [
        ("demo", ClusterHealth.READY, 2, 2)
    ]
    asleep = ours[other.namespace]
    assert (asleep.health, asleep.desired, asleep.gpus) == (ClusterHealth.SUSPENDED, 0, 0.0)


async def test_cluster_that_cannot_be_read_hides_no_other(place: Place) -> None:
    place.cluster("good")
    groups = place.cluster("odd")["spec"]["workerGroupSpecs"]
    resources = groups[0]["template"]["spec"]["containers"][0]["resources"]
    resources["limits"]["memory"] = "1e999"
    place.merge(place.path("rayclusters", "odd"), {"spec": {"workerGroupSpecs": groups}})
    client = KubeClient(Credentials(read([place.testbed.kubeconfig]).context()))
    try:
        found = await list_clusters(client, place.namespace)
    finally:
        await client.aclose()
    assert [row.ref.name for row in found] == ["good"]


async def test_the_fleet_follows_what_comes_and_goes(place: Place) -> None:
    place.cluster("first")
    events = source(place.testbed.kubeconfig).events()

    def names(event: Event) -> set[str]:
        assert isinstance(event, ClustersListed)
        assert (event.context, event.source) == ("here", "context:here")
        return {row.ref.name for row in event.clusters if row.ref.namespace == place.namespace}

    def has(*wanted: str) -> Callable[[Event], bool]:
        return lambda event: isinstance(event, ClustersListed) and names(event) == set(wanted)

    await until(events, has("first"))
    await until(events, lambda event: isinstance(event, SourceHealth) and event.ok)
    place.cluster("second")
    await until(events, has("first", "second"))
    place.ask("DELETE", place.path("rayclusters", "first"))
    await until(events, has("second"))


async def test_user_without_cluster_wide_list_sees_the_namespace_of_the_context(
    place: Place,
) -> None:
    place.cluster("mine")
    kubeconfig = place.user("cockpit-narrow", [READ])
    document = yaml.safe_load(kubeconfig.read_text())
    document["contexts"][0]["context"]["namespace"] = place.namespace
    kubeconfig.write_text(yaml.safe_dump(document))
    listed = await until(
        source(kubeconfig).events(), lambda event: isinstance(event, ClustersListed)
    )
    assert isinstance(listed, ClustersListed)
    assert [row.ref.name for row in listed.clusters] == ["mine"]


async def test_a_context_that_cannot_be_used_reports_it_and_ends_nothing(place: Place) -> None:
    def broken() -> Credentials:
        raise UsageError("The context has no API server.")

    reported = await until(FleetSource("broken", broken).events(), lambda event: True)
    assert isinstance(reported, SourceHealth)
    assert (reported.ok, reported.source) == (False, "context:broken")
    assert "no API server" in reported.error
    nobody = place.testbed.plane.user_kubeconfig("cockpit-nobody")
    refused = await until(source(nobody).events(), lambda event: isinstance(event, SourceHealth))
    assert isinstance(refused, SourceHealth)
    assert not refused.ok
    assert "rayclusters" in refused.error
