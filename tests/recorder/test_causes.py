"""A recording has what the verdict on an end needs: a replay gives the same one."""

from __future__ import annotations

from cockpit.insight.causes.verdict import causes_of_run
from cockpit.model.death import MemoryKill
from cockpit.model.event import Event, LogExcerpted, MemoryKillsListed
from cockpit.recorder.codec import decode, encode
from cockpit.recorder.writing.event_filter import ClusterSnapshot, EventFilter
from cockpit.store.store import Store
from tests.causes.corpus import DIED, ENDED_S, JOB, RUN, attempt, event

KILL = MemoryKill("w", "node-1", "10.0.0.2", 101, ENDED_S - 1, "95 % of the memory was in use")
LINES = ("Fatal Python error: Segmentation fault", "  File 'model.py', line 3 in forward")


def excerpt(run_id: str = RUN) -> LogExcerpted:
    return LogExcerpted(
        at_s=ENDED_S + 5,
        source="failures",
        job_id=JOB,
        log="log of rank 1",
        lines=LINES,
        run_id=run_id,
        attempt=1,
        rank=1,
    )


def replayed(*events: Event) -> Store:
    """Through the filter of the run's recording and its file format."""
    store, kept = Store(), EventFilter(RUN)
    for one in events:
        for recorded in kept.kept(one, one.at_s):
            found = decode(encode(recorded))
            assert found is not None
            store.apply(found[1])
    return store


def live(*events: Event) -> Store:
    store = Store()
    for one in events:
        store.apply(one)
    return store


def test_replay_gives_the_same_verdict() -> None:
    killed = MemoryKillsListed(at_s=ENDED_S, source="failures", kills=(KILL,))
    oom = event("w-1", "OOMKilling", "Memory cgroup out of memory: Killed process 101")
    for more in ((killed,), (oom,), (excerpt(),), ()):
        events = attempt(f"rank 1: {DIED}", *more)
        of_live, of_replay = live(*events), replayed(*events)
        causes = causes_of_run(of_live, of_live.runs[RUN])
        assert causes == causes_of_run(of_replay, of_replay.runs[RUN])
        assert causes[0].ranks == (1,)


def test_excerpt_of_another_run_is_left_out() -> None:
    assert replayed(excerpt("run-2")).excerpts == {}


def test_kills_from_before_a_recording_are_in_its_first_snapshot() -> None:
    snapshot = ClusterSnapshot()
    listed = MemoryKillsListed(at_s=ENDED_S, source="failures", kills=(KILL,))
    snapshot.take(listed)
    assert list(snapshot.events()) == [listed]
