"""The verdict on a hang, from dumps that no small run of real processes makes."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence

import pytest
from msgspec.structs import replace

from cockpit.insight.detectors.findings import findings
from cockpit.insight.hang.advice import actions
from cockpit.insight.hang.before import changes
from cockpit.insight.hang.place import Place, place
from cockpit.insight.hang.text import _stack, lines
from cockpit.insight.hang.types import Confidence, Kind, Verdict
from cockpit.insight.hang.verdict import last_verdict, verdict
from cockpit.insight.metrics.stall import stall
from cockpit.model.alert import Severity
from cockpit.model.event import AttemptStarted, Event, Notice, RankSampled, RanksDumped, RunSeen
from cockpit.model.hang import Collective, Dump, ProcessGroup, Reached, Stack, Thread
from cockpit.model.run import Placement, RankSample, RunState
from cockpit.recorder import codec
from cockpit.sources.telemetry.events import event_of
from cockpit.store.store import Store
from training.telemetry import wire

WORLD = ProcessGroup("0", "default_pg", tuple(range(4)))
LOOP = Stack(("loop (train.py:11)",), 0, "time.sleep")
REDUCE = Stack(("all_reduce (torch/distributed/distributed_c10d.py:1)", "loop (train.py:12)"), 1)
REPORT = Stack(("report (ray/train/v2/api/train_fn_utils.py:1)", "loop (train.py:13)"), 1)
BACKWARD = Stack(("_engine_run_backward (torch/autograd/graph.py:1)", "loop (train.py:12)"), 1)
IDLE = Stack(
    ("main_loop (ray/_private/worker.py:1)", "<module> (ray/_private/workers/default_worker.py:1)")
)


def dump(rank: int, stack: int, seq: int, *, waits: bool, **values: object) -> Dump:
    given: dict[str, object] = {
        "idle_s": 31.0,
        "usual_s": 1.0,
        "bound_s": 20.0,
        "slow_bound_s": 120.0,
        "cpu_percent": 1.0,
        "threads": (Thread("", stack, "S", is_training=True),),
        "reached": (Reached(0, seq, seq - waits),),
        "collectives": (Collective(0, seq, "all_reduce", "float32 [1024]", 31.0, done=not waits),),
    }
    return Dump(rank, **(given | values))  # type: ignore[arg-type]


def hung(
    dumps: Iterable[Dump],
    groups: Sequence[ProcessGroup] = (WORLD,),
    stale: tuple[int, ...] = (),
    ranks: int = 4,
    host: str = "",
    submission_id: str = "",
) -> Store:
    store = Store()
    seen = RunSeen(at_s=1.0, source="t", run_id="r", name="", state=RunState.RUNNING)
    store.apply(replace(seen, submission_id=submission_id))
    places = tuple(Placement(rank, "", host, 1) for rank in range(ranks))
    store.apply(AttemptStarted(at_s=1.0, source="t", run_id="r", attempt=1, placements=places))
    event = RanksDumped(
        at_s=100.0,
        source="t",
        run_id="r",
        attempt=1,
        dumps=tuple(dumps),
        stacks=(LOOP, REDUCE, REPORT, IDLE, BACKWARD),
        groups=tuple(groups),
        silent=stale,
    )
    decoded = codec.decode(codec.encode(event))
    assert decoded is not None
    store.apply(decoded[1])
    return store


def judged(store: Store) -> Verdict:
    found = verdict(store.runs["r"], 101.0)
    assert found is not None
    return found


def test_text_names_the_rank_to_end() -> None:
    found = judged(hung([dump(1, 0, 2, waits=False), dump(0, 1, 3, waits=True)]))
    assert "newest checkpoint: cockpit kill 1" in "\n".join(lines(found))


def test_sentence_names_the_rank_the_collective_and_the_lines() -> None:
    waiting = [dump(rank, 1, 3, waits=True) for rank in (0, 2, 3)]
    found = judged(hung([dump(1, 0, 2, waits=False), *waiting]))
    assert found.sentence == (
        "Rank 1 never called all_reduce #3 of group default (float32 [1024]); ranks 0, 2, 3 have "
        "waited in it for 31 s. Rank 1 is in `loop` (train.py:11), `time.sleep`; 3 other ranks "
        "are in `all_reduce` (train.py:12)."
    )
    assert found.where == (
        "Rank 1 is in `loop` (train.py:11), `time.sleep`; 3 other ranks are in `all_reduce` "
        "(train.py:12)."
    )
    assert (found.kind, found.ranks, found.confidence) == (Kind.USER, (1,), Confidence.HIGH)


def test_rank_in_the_backward_pass_is_in_its_collective() -> None:
    found = judged(hung([dump(1, 0, 2, waits=False), dump(0, 4, 3, waits=True)]))
    assert "1 other rank is in `all_reduce` of the backward pass (train.py:12)." in found.sentence


def test_text_shows_what_to_do_and_how_far_each_rank_is_in_the_group() -> None:
    waiting = [dump(rank, 1, 3, waits=True) for rank in (0, 2, 3)]
    found = judged(hung([dump(1, 0, 2, waits=False), *waiting]))
    text = lines(found)
    assert text.index("To do:") == 4
    at = text.index("Group default, newest collective called:")
    assert text[at + 1 : at + 3] == [
        "  #2: rank 1",
        "  #3 all_reduce (float32 [1024]), waiting for 31 s: ranks 0, 2, 3",
    ]
    [group] = found.groups
    later = replace(group, last_called={2: (1,), 4: (0, 2), 3: (3,)})  # as in DDP's backward pass
    text = lines(replace(found, groups=(later,)))
    assert text[text.index("  #2: rank 1") + 1 :][:2] == [
        "  #3 all_reduce (float32 [1024]), waiting for 31 s: ranks 0, 2, 3",
        "  #4: ranks 0, 2",
    ]
    far = replace(group, last_called={seq: (seq,) for seq in range(20)})
    cut = lines(replace(found, groups=(far,) * 6, may_restart=False))
    assert "cockpit resume JOB" in cut[5]
    assert "  … 14 more numbers" in cut
    assert "  … 2 more groups" in cut


def test_changes_before_the_hang_are_listed_with_their_age_and_later_ones_are_not() -> None:
    store = hung([dump(1, 0, 2, waits=False), dump(0, 1, 3, waits=True)])
    began_s = 100.0 - 31.0
    for at_s, name in ((began_s - 601, "old"), (began_s - 12, "w-1"), (began_s + 20, "later")):
        store.apply(
            Notice(at_s=at_s, source="t", kind="Pod", name=name, reason="Killed", message="by 9")
        )
    store.apply(
        Notice(at_s=began_s - 5, source="t", kind="Recording", name="c", reason="R", message="m")
    )
    run = store.runs["r"]
    found = judged(store)
    assert changes(store, run, found) == [
        "1 m 08 s before: attempt 1 started with 4 ranks",
        "12.0 s before: Pod w-1: Killed: by 9",
    ]
    text = lines(found, changes(store, run, found))
    assert text[text.index("Before the hang:") + 2] == "  12.0 s before: Pod w-1: Killed: by 9"


def test_text_has_the_age_of_the_dumps() -> None:
    found = judged(hung([dump(1, 0, 2, waits=False), dump(0, 1, 3, waits=True)]))
    text = lines(found, now_s=found.at_s + 90.0)
    assert "No progress for 2 m 01 s. Newest dump: 1 m ago." in text


def test_wide_text_has_the_cause_beside_the_others_and_no_longer_line() -> None:
    waiting = [dump(rank, 1, 3, waits=True) for rank in (0, 2, 3)]
    found = judged(hung([dump(1, 0, 2, waits=False), *waiting]))
    wide = lines(found, width=120)
    assert any("Rank 1 (cause, user code):" in line and "Ranks 0, 2, 3" in line for line in wide)
    assert any("→ loop (train.py:11)" in line and "loop (train.py:12)" in line for line in wide)
    for width in (40, 80, 120):
        assert max(map(len, lines(found, width=width))) <= width


@pytest.mark.parametrize("job", ["raysubmit_Ny9vBxxqA5", "train-a-b-c8a5601"])
def test_command_is_on_one_line(job: str) -> None:
    dumps = [dump(1, 0, 2, waits=False), dump(0, 1, 3, waits=True)]
    store = hung(dumps, submission_id=job)
    assert f"    cockpit stop {job}" in lines(judged(store), width=60)


def test_evidence_has_the_node_and_process_of_the_cause() -> None:
    found = judged(hung([dump(1, 0, 2, waits=False), dump(0, 1, 3, waits=True)], host="10.0.0.4"))
    assert found.evidence[0] == "rank 1: 10.0.0.4, pid 1; 1 % CPU, kernel state S"
    waiting = [dump(0, 1, 3, waits=True)]
    silent = judged(hung(waiting, stale=(1,), host="10.0.0.4"))
    assert "rank 1: 10.0.0.4, pid 1; it sends no data" in silent.evidence


def test_hang_replaces_the_finding_of_a_hung_run() -> None:
    waiting = [dump(rank, 1, 3, waits=True) for rank in (0, 2, 3)]
    store = hung([dump(1, 0, 2, waits=False), *waiting])
    [finding] = findings(store, store.runs["r"], 101.0)
    assert (finding.kind, finding.severity) == ("hang", Severity.CRITICAL)
    assert finding.todo.startswith("Delete the pod of the rank, so that the run restarts")
    assert finding.todo.endswith("stop the job: cockpit stop JOB")


def test_wrong_script_is_not_restarted() -> None:
    found = judged(hung([dump(rank, 1, 3, waits=True) for rank in range(4)]))
    for kind in (Kind.SKIPPED, Kind.MISMATCH, Kind.DEADLOCK):
        assert (
            actions(replace(found, kind=kind))[-1]
            == "A restart would hang again, so stop the job: cockpit stop JOB"
        )


def test_action_names_the_job_of_the_run_as_an_argument_of_a_shell() -> None:
    dumps = (dump(1, 0, 2, waits=False), dump(0, 1, 3, waits=True))
    found = judged(hung(dumps, submission_id="raysubmit_1"))
    assert actions(found)[-1].endswith("stop the job: cockpit stop raysubmit_1")
    hostile = replace(found, job="a; rm -r b", may_restart=False)
    assert actions(hostile)[0].endswith("cockpit stop 'a; rm -r b', cockpit resume 'a; rm -r b'")


def test_all_ranks_in_one_collective_are_held_up_by_the_network() -> None:
    found = judged(hung([dump(rank, 1, 3, waits=True) for rank in range(4)]))
    assert (found.kind, found.ranks) == (Kind.NETWORK, (0, 1, 2, 3))


def test_minority_of_another_shape_is_the_cause() -> None:
    other = dump(2, 1, 3, waits=True)
    other = dump(2, 1, 3, waits=True, collectives=(Collective(0, 3, "all_reduce", "float32 [8]"),))
    found = judged(hung([*(dump(rank, 1, 3, waits=True) for rank in (0, 1, 3)), other]))
    assert (found.kind, found.ranks) == (Kind.MISMATCH, (2,))


def test_rank_that_lies_about_its_sequence_is_ignored() -> None:
    waiting = [dump(rank, 1, 3, waits=True) for rank in (0, 2)]
    liar = dump(3, 1, 10**15, waits=True)
    found = judged(hung([dump(1, 0, 2, waits=False), *waiting, liar]))
    assert found.ranks == (1,)
    assert any("implausible" in line for line in found.evidence)


@pytest.mark.parametrize(
    "lie",
    [
        {},
        {
            "reached": (Reached(0, 30_000, 29_999),),
            "collectives": (
                Collective(0, 5, "all_reduce", "float32 [1024]", 31.0),
                Collective(0, 30_000, "all_reduce", "float32 [1024]", 31.0),
            ),
        },
    ],
    ids=["alone", "beside the right one"],
)
def test_rank_that_reports_an_old_collective_as_pending_is_ignored(lie: dict[str, object]) -> None:
    waiting = [dump(rank, 1, 30_000, waits=True) for rank in (0, 2)]
    liar = dump(3, 1, 5, waits=True, **lie)
    found = judged(hung([dump(1, 0, 29_999, waits=False), *waiting, liar]))
    assert (found.kind, found.ranks, found.confidence) == (Kind.USER, (1,), Confidence.HIGH)
    assert "ignored for implausible sequences: rank 3" in found.evidence


def test_network_is_no_certain_cause_while_the_sequence_of_a_member_is_ignored() -> None:
    pair = ProcessGroup("0", "default_pg", (0, 1))
    dumps = [dump(1, 0, 2**40, waits=False), dump(0, 1, 3, waits=True)]
    found = judged(hung(dumps, groups=(pair,), ranks=2))
    assert (found.kind, found.confidence) == (Kind.NETWORK, Confidence.LOW)
    assert "and it is not known whether rank 1 called it." in found.sentence
    assert "all members" not in found.sentence


def test_dump_of_an_attempt_that_the_run_does_not_have_is_ignored() -> None:
    waiting = RanksDumped(
        at_s=101.0,
        source="t",
        run_id="r",
        attempt=1,
        dumps=(dump(1, 0, 2, waits=False), dump(0, 1, 3, waits=True)),
        stacks=(LOOP, REDUCE),
        groups=(WORLD,),
    )
    store = hung(waiting.dumps)
    store.apply(replace(waiting, attempt=2**30, dumps=()))
    assert judged(store).ranks == (1,)
    started = AttemptStarted(at_s=102.0, source="t", run_id="r", attempt=2, placements=())
    store.apply(started)
    store.apply(replace(waiting, attempt=2))
    assert judged(store).ranks == (1,)


def test_rank_that_reports_less_than_the_collective_it_is_in_is_not_the_cause() -> None:
    ranks = [dump(rank, 1, 3, waits=True) for rank in (0, 2)]
    liar = dump(3, 1, 3, waits=True, reached=(Reached(0, 1, 1),))
    assert judged(hung([dump(1, 0, 2, waits=False), *ranks, liar])).ranks == (1,)
    assert judged(hung([*ranks, dump(1, 1, 3, waits=True), liar])).kind is Kind.NETWORK


def test_collectives_newer_than_the_last_progress_are_no_hang() -> None:
    """A rank of thousands of process groups: the watchdog does not count the calls of all."""
    young = (Collective(0, 3, "all_reduce", "float32 [8]", 0.2),)
    ranks = [dump(rank, 1, 3, waits=True, collectives=young) for rank in (0, 2, 3)]
    found = judged(hung([dump(1, 0, 2, waits=False), *ranks]))
    assert found.confidence is Confidence.LOW
    assert "the ranks make progress in other groups" in found.evidence[-1]


def test_rank_whose_memory_is_swapped_out_is_named_after_twice_its_longest_pause() -> None:
    swapped = {"swapped_bytes": 3 << 30, "major_faults_per_s": 220.0, "longest_s": 10.0}
    late = dump(1, 0, 2, waits=False, **swapped)
    found = judged(hung([late, dump(0, 1, 3, waits=True, longest_s=10.0)]))
    assert (found.kind, found.ranks, found.confidence) == (Kind.SWAPPED, (1,), Confidence.MEDIUM)
    assert "3.0 GiB swapped out, 220 major page faults/s" in found.evidence[0]
    mapped = dump(1, 0, 2, waits=False, major_faults_per_s=220.0)  # a data set in a mapped file
    assert judged(hung([mapped, dump(0, 1, 3, waits=True)])).kind is Kind.USER
    waiting = [dump(0, 1, 3, waits=True, longest_s=10.0)]
    assert judged(hung([late, *waiting], stale=(1,))).kind is Kind.SWAPPED


def test_thread_in_uninterruptible_sleep_waits_for_storage() -> None:
    asleep = dump(1, 0, 2, waits=False, threads=(Thread("", 0, "D", is_training=True),))
    found = judged(hung([asleep, dump(0, 1, 3, waits=True)]))
    assert (found.kind, found.ranks) == (Kind.STORAGE, (1,))
    assert "kernel state D" in found.evidence[0]


def test_rank_with_an_xid_is_a_gpu_fault_even_if_it_sends_nothing() -> None:
    for dumps, silent, causes in (
        ([dump(rank, 1, 3, waits=True) for rank in range(4)], (), (1,)),
        ([dump(rank, 1, 3, waits=True) for rank in (0, 2, 3)], (1,), (1,)),
    ):
        store = hung(dumps, stale=silent)
        sample = RankSample(
            rank=1, attempt=1, at_s=-1.0, step=1, first_step=1, steps_total=1, gpu_xid=79
        )
        store.apply(RankSampled(at_s=1.0, source="t", run_id="r", samples=(sample,)))
        found = judged(store)
        assert (found.kind, found.ranks) == (Kind.GPU, causes)
        assert "rank 1: Xid 79 on its GPU" in found.evidence
        assert any("cockpit cordon NODE" in line for line in actions(found))


def test_finished_rank_is_named() -> None:
    waiting = [dump(rank, 1, 3, waits=True) for rank in (0, 2, 3)]
    found = judged(hung([dump(1, 3, 2, waits=False), *waiting]))
    assert (found.kind, found.ranks) == (Kind.SKIPPED, (1,))
    assert "out of its training function" in found.sentence


def test_rank_that_does_not_report_holds_up_the_others() -> None:
    without = {"reached": (), "collectives": ()}
    found = judged(
        hung([dump(0, 2, 1, waits=False, **without), dump(1, 0, 1, waits=False, **without)])
    )
    assert (found.kind, found.ranks) == (Kind.USER, (1,))
    assert "not called ray.train.report" in found.sentence


def test_rank_that_makes_progress_is_named_with_low_confidence() -> None:
    found = judged(hung([dump(rank, 1, 3, waits=True) for rank in (0, 2, 3)]))
    assert (found.kind, found.ranks, found.confidence) == (Kind.SKIPPED, (1,), Confidence.LOW)


def test_busy_rank_is_no_hang_before_the_slow_bound() -> None:
    waiting = [dump(rank, 1, 3, waits=True) for rank in (0, 2, 3)]
    busy = dump(1, 0, 2, waits=False, cpu_percent=99.0)
    assert judged(hung([busy, *waiting])).confidence is Confidence.LOW
    runnable = (Thread("", 0, "R", is_training=True),)
    starved = dump(1, 0, 2, waits=False, threads=runnable)
    assert judged(hung([starved, *waiting])).confidence is Confidence.LOW
    later = [dump(rank, 1, 3, waits=True, idle_s=130.0) for rank in (0, 2, 3)]
    busy = dump(1, 0, 2, waits=False, cpu_percent=99.0, idle_s=130.0)
    assert judged(hung([busy, *later])).confidence is Confidence.MEDIUM


def test_ranks_that_wait_for_no_other_are_no_hang_while_the_pace_is_unknown() -> None:
    idle = {"reached": (), "collectives": (), "idle_s": 1000.0}
    known = [dump(rank, 0, 1, waits=False, **idle) for rank in range(4)]
    assert judged(hung(known)).confidence is Confidence.MEDIUM
    unknown = [dump(rank, 0, 1, waits=False, usual_s=None, **idle) for rank in range(4)]
    assert judged(hung(unknown)).confidence is Confidence.LOW
    finished = dump(3, 3, 1, waits=False, **idle)
    assert judged(hung([*known[:3], finished])).confidence is Confidence.LOW


def test_run_that_lacks_resources_is_explained() -> None:
    store = Store()
    message = "waits for resources: 8 GPUs, the cluster has 4"
    store.apply(
        RunSeen(
            at_s=1.0,
            source="t",
            run_id="r",
            name="",
            state=RunState.SCHEDULING,
            message=message,
        )
    )
    run = store.runs["r"]
    assert verdict(run, 20.0) is None
    found = verdict(run, 31.0)
    assert found is not None
    assert (found.kind, found.confidence) == (Kind.RESOURCES, Confidence.HIGH)
    assert message in found.sentence
    assert "No progress for 30.0 s." in lines(found, now_s=31.0)


def test_attempt_that_ended_in_a_hang_has_its_verdict_after_the_next_one_was_late_too() -> None:
    store = hung([dump(1, 0, 2, waits=False), dump(0, 1, 3, waits=True)], host="10.0.0.4")
    run = store.runs["r"]
    for number in range(2, 7):
        store.apply(
            AttemptStarted(at_s=200.0, source="t", run_id="r", attempt=number, placements=())
        )
        late = RanksDumped(
            at_s=300.0,
            source="t",
            run_id="r",
            attempt=number,
            dumps=(dump(0, 0, 1, waits=False, reached=(), collectives=()),),
            stacks=(LOOP,),
        )
        store.apply(late)
        first = last_verdict(run, run.attempts[1])
        assert (first is not None) == (number <= 4), "the last three attempts are kept"
        if first is not None:
            assert (first.ranks, first.kind) == ((1,), Kind.USER)
            assert first.evidence[0].startswith("rank 1: 10.0.0.4, pid 1;")
    assert last_verdict(run, run.attempts[6]) is not None


def test_sample_after_a_dump_is_progress() -> None:
    store = hung([dump(0, 1, 3, waits=True)])
    for at_s in (0.0, 1.0):
        assert judged(store)
        sample = RankSample(
            rank=0, attempt=1, at_s=at_s, step=5, first_step=5, steps_total=5 + int(at_s)
        )
        store.apply(RankSampled(at_s=1.0, source="t", run_id="r", samples=(sample,)))
    assert verdict(store.runs["r"], 101.0) is None


_SEEN = RunSeen(at_s=1.0, source="t", run_id="r", name="", state=RunState.RUNNING)
_MORE = RanksDumped(at_s=101.0, source="t", run_id="r", attempt=1, stacks=(LOOP,), groups=(WORLD,))
_XID = RankSample(rank=1, attempt=1, at_s=-1.0, step=1, first_step=1, steps_total=1, gpu_xid=79)
_MOVED = (Placement(1, "", "other-host", 1),)


@pytest.mark.parametrize(
    "event",
    [
        replace(_MORE, dumps=(dump(1, 0, 2, waits=False, idle_s=39.0),)),
        replace(_MORE, dumps=(dump(2, 0, 2, waits=False, number=0),)),
        replace(_MORE, silent=(1,)),
        replace(_SEEN, max_failures=0),
        replace(_SEEN, submission_id="raysubmit_1"),
        RankSampled(at_s=1.0, source="t", run_id="r", samples=(_XID,)),
        RankSampled(at_s=1.0, source="t", run_id="r", samples=(replace(_XID, rank=2, at_s=9.0),)),
        AttemptStarted(at_s=1.0, source="t", run_id="r", attempt=1, placements=_MOVED),
    ],
)
def test_verdict_is_kept_until_a_fact_changes(event: Event) -> None:
    def store() -> Store:
        waiting = [dump(rank, 1, 3, waits=True) for rank in (0, 2, 3)]
        return hung([dump(1, 0, 2, waits=False), *waiting])

    kept, fresh = store(), store()
    before = judged(kept)
    assert verdict(kept.runs["r"], 500.0) is before
    kept.apply(event)
    fresh.apply(event)
    after, expected = (verdict(each.runs["r"], 101.0) for each in (kept, fresh))
    assert after == expected
    assert after != before


def test_thousand_ranks_are_judged_in_time() -> None:
    group = ProcessGroup("0", "default_pg", tuple(range(1000)))
    dumps = [dump(r, 0 if r == 777 else 1, 3 - (r == 777), waits=r != 777) for r in range(1000)]
    store = hung(dumps, [group], ranks=1000)
    began_s = time.process_time()
    found = judged(store)
    first_s = time.process_time() - began_s
    assert first_s < 1.0
    began_s = time.process_time()
    assert all(judged(store) is found for _ in range(20))
    assert time.process_time() - began_s < first_s
    assert found.ranks == (777,)
    assert "999 other ranks are in `all_reduce`" in found.sentence


@pytest.mark.parametrize(
    ("frames", "user", "call", "expected"),
    [
        (("fetch (torch/utils/data/_utils/fetch.py:1)", "loop (a.py:1)"), 1, "", Place.DATA),
        (("wait (threading.py:1)", "loop (a.py:1)"), 1, "", Place.LOCK),
        (("loop (a.py:1)",), 0, "os.fsync", Place.STORAGE),
        (("loop (a.py:1)",), 0, "with self.lock", Place.LOCK),
        (
            ("copy (pyarrow/fs.py:1)", "report (ray/train/x.py:1)", "f (a.py:1)"),
            2,
            "",
            Place.STORAGE,
        ),
        (("forward (torch/nn/x.py:1)", "evaluate (a.py:1)"), 1, "", Place.EVALUATION),
        ((), -1, "", Place.USER),
    ],
)
def test_place_of_a_stack(frames: tuple[str, ...], user: int, call: str, expected: Place) -> None:
    assert place(Stack(frames, user, call)) is expected


def test_hostile_dumps_are_cut_to_what_is_plausible() -> None:
    bad = wire.Dump(
        rank=0,
        attempt=1,
        t=1.0,
        idle_s=30.0,
        threads=(wire.Thread(name="x\x1b[2J", stack=5), wire.Thread(name="", stack=-1)),
        reached=(wire.Reached(group=9, enqueued=1, completed=1),),
        collectives=(wire.Collective(group=-1, seq=1, op=""),),
    )
    infinite = wire.Dump(rank=1, attempt=1, t=1.0, idle_s=float("inf"))
    stacks = tuple(wire.Stack(frames=("f" * 10_000,) * 500, user=400) for _ in range(3))
    groups = (wire.ProcessGroup(name="0", members=(2, 1, 1)),)
    body = wire.Hang(run="r", attempt=1, dumps=(bad, infinite), stacks=stacks, groups=groups)
    record = wire.decode(wire.encode(wire.Record(1, 5.0, body)))
    assert record is not None
    event = event_of(record)
    assert isinstance(event, RanksDumped)
    assert [dump.rank for dump in event.dumps] == [0]
    assert (len(event.stacks[0].frames), event.stacks[0].user) == (64, -1)
    assert event.groups[0].members == (1, 2)
    store = Store()
    store.apply(AttemptStarted(at_s=1.0, source="t", run_id="r", attempt=1, placements=()))
    store.apply(event)
    kept = store.runs["r"].hang.dumps[0].dump
    assert [*kept.threads, *kept.reached, *kept.collectives] == []


def test_ten_thousand_groups_are_judged() -> None:
    groups = [ProcessGroup(str(at), "", (0, 1)) for at in range(10_000)]
    reached = tuple(Reached(at, 1, 1) for at in range(10_000))
    waits = dump(0, 1, 2, waits=True, reached=(Reached(0, 2, 1), *reached[1:]))
    late = dump(1, 0, 1, waits=False, reached=reached)
    assert judged(hung([waits, late], groups, ranks=2)).ranks == (1,)


def test_middle_of_a_deep_stack_is_left_out() -> None:
    frames = tuple(f"f{at} (a.py:{at})" for at in range(40))
    shown = _stack(Stack(frames, 20, "time.sleep"))
    assert shown[:2] == ["  time.sleep", "  f0 (a.py:0)"]
    assert shown[11:] == ["  … 26 more frames", "→ f20 (a.py:20)", *(f"  {f}" for f in frames[-3:])]


@pytest.mark.parametrize("stale", [(), (1,)])
def test_stacks_alone_name_the_rank_outside_of_the_collective_and_what_is_missing(
    stale: tuple[int, ...],
) -> None:
    less: dict[str, object] = {
        "reached": (),
        "collectives": (),
        "missing": "torch 2.4.0 has no flight recorder",
    }
    late = [] if stale else [dump(1, 0, 0, waits=False, **less)]
    dumps = [dump(rank, 1, 0, waits=True, **less) for rank in (0, 2, 3)]
    found = judged(hung([*dumps, *late], stale=stale))
    assert (found.ranks, found.confidence) == ((1,), Confidence.MEDIUM)
    assert found.kind is (Kind.FROZEN if stale else Kind.USER)
    assert any("cockpit stack 1" in line for line in actions(found)) is bool(stale)
    waited = "Ranks 0, 2, 3 have waited in a collective for 31 s, and rank 1 is "
    where = "not known to be in one." if stale else "in none."
    assert found.sentence.startswith(f"{waited}{where}")
    missing = f"{4 - len(stale)} ranks without collectives: torch 2.4.0 has no flight recorder"
    assert missing in found.evidence


def test_ranks_that_still_form_their_process_group_are_no_hang() -> None:
    less: dict[str, object] = {
        "reached": (),
        "collectives": (),
        "missing": "torch.distributed is not initialized",
        "usual_s": None,
        "idle_s": 700.0,
        "bound_s": 120.0,
        "slow_bound_s": 600.0,
    }
    late = dump(1, 0, 0, waits=False, **less)
    found = judged(hung([late, *(dump(rank, 1, 0, waits=True, **less) for rank in (0, 2, 3))]))
    assert (found.ranks, found.confidence) == ((1,), Confidence.LOW)


@pytest.mark.parametrize("skew_s", [-420.0, 420.0])
def test_clock_of_a_node_that_is_minutes_off_changes_neither_verdict_nor_times(
    skew_s: float,
) -> None:
    """The times are those of the aggregator."""

    def store(skew_s: float) -> Store:
        late = dump(1, 0, 2, waits=False, at_s=100.0 + skew_s)
        return hung([late, *(dump(rank, 1, 3, waits=True, at_s=100.0) for rank in (0, 2, 3))])

    found = judged(store(skew_s))
    assert found == judged(store(0.0))
    assert (found.ranks, found.confidence, found.at_s) == ((1,), Confidence.HIGH, 100.0)
    assert "No progress for 32.0 s. Newest dump: 1 s ago." in lines(found, now_s=101.0)
    hung_since = stall(store(skew_s).runs["r"], 101.0)
    assert hung_since is not None
    assert hung_since.since_s == 69.0


def test_random_dumps_are_judged_without_an_error() -> None:
    chance = random.Random(7)
    numbers = [0, 1, 2, 3, -1, 10**15]
    seconds = [0.0, 31.0, 1e9, float("inf"), float("nan")]
    for _ in range(300):
        dumps = [
            dump(
                rank,
                chance.choice([0, 1, 2, 3, 9, -5]),
                chance.choice(numbers),
                waits=chance.random() < 0.5,
                idle_s=chance.choice(seconds),
                bound_s=chance.choice(seconds),
                reached=(Reached(chance.choice([0, 1, 7]), chance.choice(numbers), 0),),
                cpu_percent=chance.choice([None, *seconds]),
            )
            for rank in chance.sample(range(8), chance.randint(1, 5))
        ]
        groups = [WORLD, ProcessGroup("1", "", (2, 99))]
        found = judged(hung(dumps, groups, stale=(chance.randint(0, 200),)))
        text = lines(found)
        assert text[0] == found.sentence
        assert text[text.index("To do:") + 1].startswith("  ")
