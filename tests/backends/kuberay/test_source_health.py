"""The backend's watches, reported as sources."""

from __future__ import annotations

from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.api.reflector import Health
from cockpit.backends.kuberay.watch import ClusterWatch
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import UnreachableError
from cockpit.store.selectors import stale_sources
from cockpit.store.store import Store


def test_a_watch_that_failed_once_does_not_look_stale_after_it_has_recovered() -> None:
    client = KubeClient.__new__(KubeClient)  # no request is sent
    watch, store = ClusterWatch(client, ClusterRef("kuberay", "demo", "ml"), ("pods",)), Store()
    pods = watch._kinds["pods"]

    def report(now_s: float, health: Health) -> None:
        pods.health, pods.health_news = health, True
        for event in watch._health_events(now_s):
            store.apply(event)

    report(1.0, Health(True))
    assert not store.sources, "only what has failed is a source of its own"
    report(10.0, Health(False, UnreachableError("no answer"), 11.0))
    assert [name for name, _, _ in stale_sources(store, 20.0)] == ["backend:pods"]
    for now_s in (30.0, 31.0, 32.0, 90.0):  # each beat
        report(now_s, Health(True))
    assert not stale_sources(store, 91.0)
