"""`cockpit scale --wait`: what it waits for, and why it ends without it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cockpit.backends.protocol import Scaled
from cockpit.cli.change.scale import Wait
from cockpit.model.cluster import Pod, WorkerGroup
from cockpit.model.event import GroupsListed
from cockpit.store.store import Store
from tests.events import HEAD, ONE, TWO, pods, reduced

DONE = Scaled("workers", 1, 2)


def seen(store: Store, desired: int, *shown: Pod, autoscaled: bool = True) -> Store:
    group = WorkerGroup("workers", desired, len(shown), min=0, max=4, autoscaled=autoscaled)
    store.apply(GroupsListed(at_s=1.0, source="backend", groups=(group,)))
    store.apply(pods(1.0, HEAD, *shown))
    return store


def test_pods_of_the_requested_number_end_the_wait_once_all_are_ready() -> None:
    wait = Wait("workers", 2, ())
    store = seen(reduced([]), 1, ONE)
    assert not wait.is_over(store), "the watch has not reported the new number"
    assert not wait.is_over(seen(store, 2, ONE, replace(TWO, ready=False)))
    assert wait.is_over(seen(store, 2, ONE, TWO))
    assert wait.is_there(store)


def test_named_pod_that_is_still_there_delays_the_end() -> None:
    wait = Wait("workers", 2, (ONE.name,))
    assert not wait.is_over(seen(reduced([]), 2, ONE, TWO))


@pytest.mark.parametrize(
    ("autoscaled", "who"),
    [(True, "Ray's autoscaler or another client has changed it."),
     (False, "Another client has changed it.")],
)  # fmt: skip
def test_number_that_another_client_changes_ends_the_wait_with_what_keeps_it(
    autoscaled: bool, who: str
) -> None:
    wait = Wait("workers", 2, ())
    store = seen(reduced([]), 1, ONE, autoscaled=autoscaled)
    assert not wait.is_over(store)
    assert not wait.is_over(seen(store, 2, ONE, autoscaled=autoscaled))
    assert wait.is_over(seen(store, 1, ONE, autoscaled=autoscaled))
    assert not wait.is_there(store)
    error = wait.error(store, DONE)
    assert str(error).splitlines() == [
        "Group workers was set to 1 pod before its 2 were ready.",
        who,
        "To keep the number: cockpit scale workers 2 --min 2",
    ]


def test_time_that_is_over_is_reported_with_the_note_of_the_group() -> None:
    wait = Wait("workers", 2, ())
    store = seen(reduced([]), 2, ONE)
    assert not wait.is_over(store)
    error = wait.error(store, DONE)
    assert str(error).splitlines() == [
        "Group workers does not have its 2 pods after 180 s.",
        "See why with: cockpit pods",
    ]
