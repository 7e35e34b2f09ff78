from __future__ import annotations

from msgspec.structs import replace

from cockpit.model.cluster import Node, PodPhase
from cockpit.model.event import NodesListed, SourceHealth
from cockpit.store.history import REMOVED_KEPT, Gap
from cockpit.store.store import Store
from tests.events import HEAD, ONE, THREE, TWO, pod, pods, reduced


def health(at_s: float, *, ok: bool = True, source: str = "ray", error: str = "") -> SourceHealth:
    return SourceHealth(at_s=at_s, source=source, ok=ok, error=error)


def test_a_pod_is_remembered_with_when_it_came_was_ready_and_went() -> None:
    starting = replace(THREE, phase=PodPhase.PENDING, ready=False)
    store = reduced(
        [
            pods(10.0, HEAD, ONE, TWO),
            pods(20.0, HEAD, ONE, replace(TWO, phase=PodPhase.TERMINATING)),
            pods(21.0, HEAD, ONE),
            pods(22.0, HEAD, ONE, starting),
            pods(30.0, HEAD, ONE, THREE),
        ]
    )
    two, three = store.past.lives([TWO.name, THREE.name])
    assert (two.seen_s, two.left_s(15.0), two.removed_s) == (1.0, 20.0, 21.0)
    assert (three.seen_s, three.ready_s(0.0), three.removed_s) == (22.0, 30.0, None)


def test_the_first_pages_of_a_list_take_no_pod_away() -> None:
    first = replace(pods(10.0, HEAD, ONE), more=False)
    store = reduced([first, replace(pods(20.0, HEAD), more=True)])
    assert store.past.pods[ONE.name].removed_s is None


def test_pods_that_were_deleted_long_ago_are_dropped() -> None:
    store = Store()
    for number in range(REMOVED_KEPT + 50):
        store.apply(pods(float(number), HEAD, pod(f"w-{number}", f"10.0.{number}.1")))
    assert len(store.past.pods) == REMOVED_KEPT + 2
    assert "w-0" not in store.past.pods


def test_a_node_dies_when_it_is_first_reported_dead_or_missing() -> None:
    one, two = (Node(f"n{n}", f"10.0.0.{n}", "h", False, True) for n in (1, 2))

    def nodes(at_s: float, *listed: Node) -> NodesListed:
        return NodesListed(at_s=at_s, source="ray", nodes=listed)

    was_dead = Node("n0", "10.0.0.9", "h", False, False)
    dead = replace(one, alive=False)
    store = reduced([nodes(1.0, was_dead, one, two), nodes(2.0, dead, two), nodes(3.0, dead)])
    assert [(death.id, death.at_s) for death in store.past.deaths] == [("n1", 2.0), ("n2", 3.0)]


def test_failing_source_was_away_from_its_last_success_to_its_next() -> None:
    store = reduced(
        [
            health(1.0),
            health(5.0),
            health(6.0, ok=False, error="refused"),
            health(8.0, ok=False, error="still"),
        ]
    )
    assert store.past.gaps["ray"] == (Gap("ray", 5.0, None, "refused"),)
    store.apply(health(9.0))
    assert store.past.gaps["ray"] == (Gap("ray", 5.0, 9.0, "refused"),)


def test_time_without_data_is_a_gap_unless_announced_or_of_a_log() -> None:
    at_rest = replace(health(10.0, source="backend"), retry_at_s=60.0)
    store = reduced(
        [
            health(10.0),
            health(40.0),
            at_rest,
            health(61.0, source="backend"),
            health(1.0, source="job:x"),
            health(99.0, source="job:x"),
        ]
    )
    assert store.past.gaps == {"ray": (Gap("ray", 10.0, 40.0, "no data"),)}


def test_a_source_that_was_never_there_was_not_away() -> None:
    absent = SourceHealth(at_s=1.0, source="telemetry", ok=True, absent=True)
    store = reduced([absent, health(2.0, ok=False), health(3.0)])
    assert store.past.gaps == {}
