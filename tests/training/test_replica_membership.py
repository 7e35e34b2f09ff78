"""Which replicas take part in a step, and which examples each of them computes."""

from __future__ import annotations

import json

import numpy as np

from training.replicas.membership import Decision, Heal, Lost, Member, Membership, Quorum
from training.replicas.messages import Join, Message, Refuse, Vote, decode, encode
from training.replicas.shares import parts


class Outlet:
    """Keeps what was sent, by connection, and is the clock."""

    def __init__(self, replicas: int) -> None:
        self.sent: dict[int, list[Decision | Lost]] = {}
        self.closed: list[int] = []
        self.now_s = 0.0
        self.membership = Membership(replicas, self, 10.0, clock=lambda: self.now_s)

    def send(self, connection: int, message: Decision | Lost) -> None:
        self.sent.setdefault(connection, []).append(message)

    def close(self, connection: int) -> None:
        self.closed.append(connection)

    def join(self, *replicas: int, connection: int = 0) -> None:
        for replica in replicas:
            member = Member(replica, f"host-{replica}:1", connection or replica)
            self.membership.join(member)

    def vote(self, *connections: int, ok: bool = True, step: int = 1) -> None:
        quorum = self.membership.quorum
        assert quorum is not None
        for connection in connections:
            self.membership.vote(connection, quorum.number, step, ok)

    def decision(self, connection: int) -> Decision:
        """The newest."""
        return [one for one in self.sent[connection] if isinstance(one, Decision)][-1]

    @property
    def quorum(self) -> Quorum:
        assert self.membership.quorum is not None
        return self.membership.quorum


def formed(replicas: int = 3) -> Outlet:
    outlet = Outlet(replicas)
    outlet.join(*range(replicas))
    return outlet


def test_quorum_is_formed_when_all_replicas_have_joined_and_takes_the_state_of_the_first() -> None:
    outlet = Outlet(3)
    outlet.join(2, 0)
    assert outlet.sent == {}
    outlet.join(1)
    decision = outlet.decision(0)
    assert decision.quorum.members == (0, 1, 2)
    assert decision.quorum.first == 0
    assert decision.quorum.heals == (Heal(1, 0, "host-0:1"), Heal(2, 0, "host-0:1"))
    assert outlet.decision(1) == outlet.decision(2) == decision


def test_step_is_committed_when_all_members_have_its_sum() -> None:
    outlet = formed()
    outlet.vote(0, 1)
    assert outlet.quorum.step == 0
    outlet.vote(2)
    assert outlet.decision(1) == Decision(True, Quorum(1, 1, ((0, 1, 2),)))


def test_step_is_tried_again_by_those_that_are_left_when_a_sum_failed() -> None:
    outlet = formed()
    outlet.vote(0, ok=False)
    outlet.membership.leave(2)
    assert outlet.sent[1][-1] == Lost(1, 2)
    outlet.vote(1, ok=False)
    assert outlet.decision(0) == Decision(False, Quorum(2, 0, ((0, 1, 2), (0, 1))))


def test_step_is_committed_without_a_member_that_died_after_it_had_sent_its_part() -> None:
    outlet = formed()
    outlet.vote(0, 1)
    outlet.membership.leave(2)
    assert outlet.decision(0) == Decision(True, Quorum(2, 1, ((0, 1),)))


def test_replica_that_joins_takes_part_after_the_next_committed_step() -> None:
    outlet = formed()
    outlet.membership.leave(0)
    outlet.vote(1, 2)
    outlet.join(0, connection=9)
    assert 9 not in outlet.sent
    outlet.vote(1, 2, step=2, ok=False)
    assert 9 not in outlet.sent
    outlet.vote(1, 2, step=2)
    quorum = outlet.decision(9).quorum
    assert quorum.members == (0, 1, 2)
    assert quorum.heals == (Heal(0, 1, "host-1:1"),)
    assert (quorum.step, quorum.first) == (2, 1)
    assert outlet.decision(1).committed


def test_member_that_does_not_vote_is_removed_after_the_patience() -> None:
    outlet = formed()
    outlet.vote(0, 1, ok=False)
    outlet.now_s = 9.0
    outlet.membership.expire()
    assert outlet.closed == []
    outlet.now_s = 10.0
    outlet.membership.expire()
    assert outlet.closed == [2]
    assert outlet.decision(0).quorum.members == (0, 1)


def test_time_in_which_the_server_was_stopped_does_not_count() -> None:
    outlet = formed()
    outlet.vote(0, 1, ok=False)
    outlet.now_s = 60.0
    outlet.membership.excuse(58.0)
    outlet.membership.expire()
    assert outlet.closed == []
    outlet.now_s = 68.0
    outlet.membership.expire()
    assert outlet.closed == [2]
    outlet.vote(0, ok=False)
    outlet.membership.excuse(1000.0)  # the vote arrived after the stop
    outlet.now_s = 78.0
    outlet.membership.expire()
    assert outlet.closed == [2, 1]


def test_replica_that_connects_again_replaces_its_lost_process() -> None:
    outlet = formed()
    outlet.join(2, connection=7)
    assert outlet.closed == [2]
    outlet.vote(0, 1)
    assert outlet.decision(7).quorum.members == (0, 1, 2)
    assert outlet.decision(7).quorum.heals == (Heal(2, 0, "host-0:1"),)


def test_vote_of_a_removed_connection_does_not_count() -> None:
    outlet = formed(2)
    outlet.membership.leave(1)
    outlet.membership.vote(1, 1, 1, ok=False)
    outlet.vote(0)
    assert outlet.decision(0).committed


def test_quorum_is_formed_again_when_all_members_were_lost() -> None:
    outlet = formed(2)
    outlet.membership.leave(0)
    outlet.join(0, connection=5)
    outlet.membership.leave(1)
    assert outlet.membership.quorum is None
    outlet.join(1, connection=6)
    assert outlet.decision(6).quorum.heals == (Heal(1, 0, "host-0:1"),)
    assert outlet.decision(5).quorum.number == 2


def test_result_reaches_all_members_and_a_replica_that_joins_later() -> None:
    outlet = formed(2)
    outlet.membership.vote(1, 1, 5, ok=True, final=True)
    outlet.now_s = 1000.0
    outlet.membership.expire()  # the first evaluates the model, for as long as it takes
    assert outlet.closed == []
    outlet.membership.vote(0, 1, 5, ok=True, final=True, result={"accuracy": 1.0})
    assert outlet.decision(1).result == {"accuracy": 1.0}
    outlet.membership.leave(1)
    outlet.join(1, connection=8)
    assert outlet.decision(8).result == {"accuracy": 1.0}


def test_result_reaches_replicas_that_wait() -> None:
    outlet = formed()
    outlet.join(1, connection=8)  # it did not receive the state
    outlet.join(2, connection=9)
    outlet.membership.vote(0, 1, 0, ok=True, final=True, result={"stopped": "no checkpoint"})
    for connection in (0, 8, 9):
        assert outlet.decision(connection).result == {"stopped": "no checkpoint"}


def test_replica_that_cannot_train_ends_the_run_only_before_the_first_quorum() -> None:
    outlet = Outlet(3)
    outlet.join(1)
    outlet.membership.refuse(5, {"stopped": "no data"})
    assert outlet.decision(1).result == outlet.decision(5).result == {"stopped": "no data"}
    outlet.join(2)
    assert outlet.decision(2).result == {"stopped": "no data"}

    running = formed()
    running.membership.leave(2)
    running.membership.refuse(6, {"stopped": "no data"})
    assert running.decision(6).result is None
    running.vote(0, 1)
    assert running.decision(0).committed


def test_messages_are_equal_after_the_network() -> None:
    messages: list[Message] = [
        Join(2, "10.0.0.1:99"),
        Vote(3, 7, ok=False),
        Lost(3, 1),
        Refuse({"stopped": "no data"}),
        Decision(True, Quorum(4, 9, ((0, 1, 2), (0, 2)), (Heal(2, 0, "10.0.0.1:99"),)), {"a": 1.5}),
    ]
    sent = [json.loads(json.dumps(encode(message))) for message in messages]
    assert [decode(message) for message in sent] == messages


def test_examples_of_a_lost_replica_are_divided_among_the_others_and_none_is_computed_twice() -> (
    None
):
    examples = np.arange(100, 125)
    rounds = [(0, 1, 2, 3), (0, 1, 3), (0, 3), (0, 3)]
    for count in range(1, len(rounds) + 1):
        members = rounds[count - 1]
        own = {member: parts(examples, rounds[:count], member) for member in members}
        together = np.concatenate([part for of_one in own.values() for part in of_one])
        assert sorted(together) == list(examples)
        if count > 1:  # what was computed stays as it is
            for member in members:
                before = parts(examples, rounds[: count - 1], member)
                assert all(map(np.array_equal, before, own[member]))


def test_examples_are_divided_as_those_of_ranks_when_no_replica_is_lost() -> None:
    examples = np.arange(10)
    assert [part.tolist() for part in parts(examples, [(0, 1, 2)], 1)] == [[1, 4, 7]]
    assert [part.tolist() for part in parts(examples, [(0, 2)], 2)] == [[1, 3, 5, 7, 9]]
