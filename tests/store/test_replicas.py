"""A run that continues without lost replicas: its quorums, and the new processes of ranks."""

from __future__ import annotations

from msgspec.structs import replace

from cockpit.model.event import Event, QuorumFormed, RankSampled, RanksReplaced
from cockpit.model.run import Heal, Placement
from cockpit.store.run import ReplicaView
from cockpit.store.store import Store
from tests.events import RUN, before_the_kill, reduced, sample


def quorum(at_s: float, number: int, members: tuple[int, ...], *heals: Heal) -> QuorumFormed:
    return QuorumFormed(
        at_s=at_s,
        source="telemetry",
        run_id=RUN,
        attempt=1,
        number=number,
        replicas=2,
        members=members,
        step=10 * number,
        heals=heals,
    )


def replaced(at_s: float, rank: int, pid: int) -> RanksReplaced:
    return RanksReplaced(
        at_s=at_s,
        source="telemetry",
        run_id=RUN,
        attempt=1,
        placements=(Placement(rank, "n9", "127.0.1.9", pid),),
    )


def of(store: Store) -> ReplicaView:
    found = store.runs[RUN].quorum
    assert found is not None
    return found


def test_missing_replicas_are_those_that_are_not_in_the_newest_quorum() -> None:
    store = reduced([*before_the_kill(), quorum(91.0, 1, (0, 1)), quorum(100.0, 2, (0,))])
    found = of(store)
    assert (found.number, found.at_s, found.missing) == (2, 100.0, (1,))


def test_healed_rank_is_kept_after_the_next_quorum_and_the_first_quorum_heals_nobody() -> None:
    first = quorum(91.0, 1, (0, 1), Heal(1, 0))
    store = reduced([*before_the_kill(), first])
    assert of(store).healed is None
    for event in (quorum(100.0, 2, (0,)), quorum(104.0, 3, (0, 1), Heal(1, 0))):
        store.apply(event)
    store.apply(quorum(110.0, 4, (1,)))
    found = of(store)
    assert (found.healed, found.healed_s, found.healed_step) == (Heal(1, 0), 104.0, 30)


def test_quorum_that_is_received_twice_or_late_changes_nothing() -> None:
    events = [quorum(91.0, 1, (0, 1)), quorum(100.0, 2, (0,))]
    store = reduced([*before_the_kill(), *events, *events])
    assert of(store).number == 2


def test_number_of_replicas_is_limited_to_known_ranks() -> None:
    store = reduced([*before_the_kill(), replace(quorum(91.0, 1, (0,)), replicas=999_999_999)])
    assert of(store).missing == (1,)


def test_replaced_rank_has_its_new_process_in_the_same_attempt() -> None:
    store = reduced([*before_the_kill(), replaced(102.0, 1, 777)])
    run = store.runs[RUN]
    assert run.attempt is not None
    assert [(placed.rank, placed.pid) for placed in run.attempt.placements] == [(0, 100), (1, 777)]
    assert run.attempt.number == 1
    assert run.attempt.ended_s is None
    placement = run.ranks[1].placement
    assert placement is not None
    assert placement.pid == 777


def test_samples_of_a_replaced_rank_count_though_its_process_has_done_fewer_steps() -> None:
    new = replace(sample(1, 1, 110.0, 81, 82), steps_total=2)
    event: Event = RankSampled(at_s=110.0, source="telemetry", run_id=RUN, samples=(new,))
    store = reduced([*before_the_kill(), replaced(102.0, 1, 777), event])
    assert store.runs[RUN].ranks[1].sample == new
    without = reduced([*before_the_kill(), event])
    assert without.runs[RUN].ranks[1].sample != new
