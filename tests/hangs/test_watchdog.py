"""The watchdog of a rank: when it sends what, and what it reads."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C import _distributed_c10d
from torch._C._distributed_c10d import FlightRecorderHook
from torch.testing._internal.distributed.fake_pg import FakeStore

from tests.drills.script import eventually
from training.telemetry.hang import flight_recorder, stacks, watchdog
from training.telemetry.hang.watchdog import Pace, Watchdog
from training.telemetry.head.hang_round import HangRound
from training.telemetry.wire import (
    HEARTBEAT,
    PROGRESS,
    Collective,
    Dump,
    Hang,
    ProcessGroup,
    Reached,
    Record,
    Stack,
    Thread,
    decode,
    encode,
)


class Rank:
    """A watchdog with a simulated clock, and what it sends."""

    def __init__(self) -> None:
        self.now_s, self.steps = 0.0, 0
        self.sent: list[tuple[float, Dump]] = []
        self.watchdog = Watchdog(
            "r", 0, 1, lambda: self.steps, self._take, clock=lambda: self.now_s
        )

    def _take(self, record: Hang) -> None:
        self.sent += [(self.now_s, dump) for dump in record.dumps]

    def passes(self, seconds: int, step_s: int = 0) -> None:
        for second in range(seconds):
            self.now_s += 1.0
            if step_s and second % step_s == step_s - 1:
                self.steps += 1
            self.watchdog.poll()

    @property
    def dumps(self) -> list[tuple[float, Dump]]:
        return [(at_s, dump) for at_s, dump in self.sent if dump.number > 0]


def test_rank_that_makes_progress_sends_heartbeats_only() -> None:
    rank = Rank()
    rank.passes(60, step_s=2)
    assert {dump.number for _, dump in rank.sent} == {HEARTBEAT}
    assert len(rank.sent) == 60 // 8 + 1


def test_first_dump_after_10_s_and_second_at_the_bound() -> None:
    rank = Rank()
    rank.passes(20, step_s=1)
    rank.passes(60)
    ages = [dump.idle_s for _, dump in rank.dumps]
    assert ages == [10.0, 20.0, 28.0, 43.0]
    assert rank.dumps[0][1].usual_s == 1.0
    assert rank.dumps[0][1].bound_s == 20.0


def test_dump_follows_when_a_rank_is_no_longer_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Rank()
    work_s = 37.0
    """Until then it uses 20 % of a CPU, as for the start of a data loader's process."""
    monkeypatch.setattr(watchdog, "_usage", lambda: (0.2 * min(rank.now_s, work_s), 0.0, 0.0))
    rank.passes(10, step_s=1)
    rank.passes(60)
    dumps = [(dump.idle_s, round(dump.cpu_percent or 0.0, 1)) for _, dump in rank.dumps]
    assert dumps == [(10.0, 20.0), (20.0, 20.0), (28.0, 17.5), (32.0, 7.5)]


def test_bound_follows_the_pace_of_slow_steps() -> None:
    rank = Rank()
    rank.passes(100, step_s=10)
    rank.passes(60)
    assert [dump.idle_s for _, dump in rank.dumps] == [30.0, 50.0, 58.0]


def test_progress_after_a_dump_is_one_record() -> None:
    rank = Rank()
    rank.passes(10, step_s=1)
    rank.passes(12)
    rank.passes(5, step_s=1)
    after = [dump.number for _, dump in rank.sent if dump.number != HEARTBEAT]
    assert after == [1, PROGRESS]


def test_unknown_pace_has_a_long_bound() -> None:
    pace = Pace(0.0)
    pace.progress(1.0)
    pace.progress(2.0)
    assert (pace.first_s, pace.bound_s, pace.slow_bound_s) == (30.0, 120.0, 600.0)
    pace.progress(3.0)
    assert (pace.first_s, pace.bound_s, pace.slow_bound_s) == (10.0, 20.0, 120.0)


def test_busy_rank_may_take_twice_its_longest_pause() -> None:
    pace = Pace(0.0)
    for at_s in (1.0, 2.0, 3.0, 103.0, 104.0):
        pace.progress(at_s)
    assert pace.slow_bound_s == 200.0


def test_dump_survives_the_wire() -> None:
    rank = Rank()
    rank.passes(10, step_s=1)
    records: list[Hang] = []
    rank.watchdog._emit = records.append
    rank.passes(10)
    [record] = [one for one in records if one.dumps[0].number > 0]
    again = decode(encode(Record(1, 5.0, record)))
    assert again is not None
    assert again.body == record
    [dump] = record.dumps
    assert dump.swapped_bytes is not None
    assert dump.swapped_bytes >= 0
    assert (dump.major_faults_per_s or 0.0) >= 0.0


def wait_for_ever(ready: threading.Event, end: threading.Event) -> None:
    ready.set()
    end.wait()


def test_stack_names_the_call_and_the_user_code() -> None:
    ready, end = threading.Event(), threading.Event()
    thread = threading.Thread(
        target=wait_for_ever, args=(ready, end), name="TrainingThread(wait_for_ever)"
    )
    thread.start()
    ready.wait()

    def seen() -> tuple[Thread, Stack]:
        threads, found = stacks.stacks()
        return threads[0], found[threads[0].stack]

    try:
        eventually(lambda: seen()[1].call == "waiter.acquire")
        training, stack = seen()
    finally:
        end.set()
        thread.join()
    assert training.is_training
    assert stack.frames[stack.user].startswith("wait_for_ever (tests/hangs/test_watchdog.py:")
    assert stack.frames[0].startswith("wait (threading.py:")
    assert stack.call == "waiter.acquire"


def test_without_process_group_the_dump_reports_it() -> None:
    assert not dist.is_initialized()
    assert flight_recorder.read()[-1] == "torch.distributed is not initialized"


def one_group() -> dict[tuple[str, str], ProcessGroup]:
    return {("0", "gloo"): ProcessGroup(name="0")}


def test_torch_without_flight_recorder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_recorder, "_groups", one_group)
    monkeypatch.setattr(flight_recorder, "_dumps", lambda backends: [])
    assert flight_recorder.read()[-1].endswith("has no flight recorder")


def test_flight_recorder_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    torn = [json.loads('{"entries": [{}]}')]
    monkeypatch.setattr(flight_recorder, "_groups", one_group)
    monkeypatch.setattr(flight_recorder, "_dumps", lambda backends: torn)
    assert flight_recorder.read()[-1] == "the flight recorder was not read: KeyError"


def test_torn_text_of_the_flight_recorder_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    c10d = SimpleNamespace(_dump_fr_trace_json=lambda **of: b'{"version": "2.10", "entries": [{"pg')
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", c10d)
    monkeypatch.setattr(flight_recorder, "_groups", one_group)
    assert flight_recorder.read()[-1] == "the flight recorder was not read: JSONDecodeError"


def test_flight_recorder_that_is_off_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_recorder, "_groups", one_group)
    monkeypatch.setattr(flight_recorder, "called", lambda: 7)
    monkeypatch.setattr(flight_recorder, "_dumps", lambda backends: [{"version": "2.10"}])
    assert flight_recorder.read()[-1] == "the flight recorder is off: TORCH_FR_BUFFER_SIZE is 0"


def test_flight_recorder_that_is_too_large_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_recorder, "_groups", one_group)
    monkeypatch.setattr(flight_recorder, "BYTES", 10)
    assert flight_recorder.read()[-1].endswith("set TORCH_FR_BUFFER_SIZE")


@pytest.fixture
def hooked_backend() -> Iterator[None]:
    """A backend without a recorder of its own, as nccl2: FlightRecorderHook records its calls."""
    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    group = dist.group.WORLD
    assert group is not None
    hook = FlightRecorderHook.attach(group, list(range(4)))
    yield
    hook.remove()
    dist.destroy_process_group()


@pytest.mark.usefixtures("hooked_backend")
def test_recorder_of_a_backend_without_a_recorder_of_its_own_is_read() -> None:
    """`nccl` is such a backend in torch 2.15: what it records is in no other dump."""
    dist.all_reduce(torch.ones(4, dtype=torch.bfloat16))
    dist.send(torch.ones(3), 2)
    groups, reached, collectives, missing = flight_recorder.read()
    assert missing == ""
    assert [(group.description, group.members) for group in groups] == [
        ("default_pg", (0, 1, 2, 3))
    ]
    assert reached == (Reached(group=0, enqueued=1, completed=1),)
    assert [(one.op, one.shape, one.done) for one in collectives] == [
        ("all_reduce", "bfloat16 [4]", True)
    ]


def test_dump_of_the_former_nccl_backend_has_the_same_format() -> None:
    """Without a GPU it has no entries; its version changes with the format of its entries."""
    of_nccl = getattr(_distributed_c10d, "_dump_nccl_trace_json", None)
    if of_nccl is None:
        pytest.skip("this torch was built without NCCL")
    assert json.loads(of_nccl())["version"] == "2.10"
    assert json.loads(_distributed_c10d._dump_fr_trace_json())["version"] == "2.10"


def entry(
    group: str, seq: int, *, retired: bool, op: str = "gloo:all_reduce", state: str = "scheduled"
) -> dict[str, Any]:
    return {
        "process_group": [group, ""],
        "collective_seq_id": seq,
        "profiling_name": op,
        "input_sizes": [[4, 8]],
        "input_dtypes": ["BFloat16"],
        "retired": retired,
        "state": state,
        "time_created_ns": seq * 10**9,
    }


def reduced(
    groups: list[tuple[str, str]], entries: list[dict[str, Any]]
) -> tuple[tuple[Reached, ...], list[tuple[int, str, bool]]]:
    known = {key: ProcessGroup(name=" ".join(key)) for key in groups}
    _, reached, collectives, _ = flight_recorder.reduce(known, [{"entries": entries}], 12 * 10**9)
    return reached, [(one.seq, one.op, one.done) for one in collectives]


@pytest.mark.parametrize(
    ("op", "is_done"),
    [("gloo:all_reduce", True), ("nccl2:all_reduce", True), ("nccl:all_reduce", False)],
)
def test_retired_collective_of_nccl_that_is_not_completed_timed_out(op: str, is_done: bool) -> None:
    _, collectives = reduced([("0", op.partition(":")[0])], [entry("0", 1, retired=True, op=op)])
    assert collectives == [(1, "all_reduce", is_done)]


@pytest.mark.parametrize("state", ["started", "completed"])
def test_coalesced_collective_of_nccl_is_one_with_the_state_of_its_end(state: str) -> None:
    ops = [entry("0", 3, retired=False, op="nccl:all_reduce") for _ in range(2)]
    end = entry("0", 3, retired=state == "completed", op="nccl:coalesced", state=state)
    reached, collectives = reduced([("0", "nccl")], [*ops, end])
    assert collectives == [(3, "all_reduce", state == "completed")]
    assert reached[0].enqueued == 3


def test_backends_of_a_group_number_their_collectives_separately() -> None:
    entries = [
        entry("0", 1, retired=True, op="gloo:barrier"),
        entry("0", 1, retired=True, op="nccl2:all_reduce"),
        entry("0", 2, retired=False, op="nccl2:all_reduce"),
    ]
    reached, collectives = reduced([("0", "gloo"), ("0", "nccl2")], entries)
    assert reached == (
        Reached(group=0, enqueued=2, completed=1),
        Reached(group=1, enqueued=1, completed=1),
    )
    assert collectives == [
        (2, "all_reduce", False),
        (1, "all_reduce", True),
        (1, "barrier", True),
    ]


def test_groups_with_open_collectives_come_first_and_are_limited() -> None:
    groups = {(str(at), "gloo"): ProcessGroup(name=str(at)) for at in range(10_000)}
    entries = [entry(str(at), 1, retired=True) for at in range(10_000)]
    entries += [entry("9999", 2, retired=False)]
    told, reached, collectives, missing = flight_recorder.reduce(
        groups, [{"entries": entries}], 12 * 10**9
    )
    assert missing == ""
    assert len(told) == len(reached) == flight_recorder.GROUPS
    assert (told[0].name, reached[0]) == ("9999", Reached(group=0, enqueued=2, completed=1))
    assert collectives[0] == Collective(
        group=0, seq=2, op="all_reduce", shape="bfloat16 [4, 8]", age_s=10.0, done=False
    )
    assert len(collectives) <= flight_recorder.COLLECTIVES


def hang(rank: int, number: int, file: str) -> Hang:
    stack = Stack(frames=(f"loop ({file}:1)",), user=0)
    dump = Dump(
        rank=rank,
        attempt=1,
        t=0.0,
        number=number,
        threads=(Thread(name="", stack=0, is_training=True),) if number > 0 else (),
    )
    return Hang(run="r", attempt=1, dumps=(dump,), stacks=(stack,))


def test_round_writes_equal_stacks_once_and_names_stale_ranks() -> None:
    now_s = 0.0
    collected = HangRound("r", 1, range(4), clock=lambda: now_s)
    for rank in range(4):
        collected.take(hang(rank, HEARTBEAT, "a.py"))
    assert collected.tick() is None
    now_s = 15.0
    for rank, file in ((0, "a.py"), (1, "a.py"), (2, "b.py")):
        collected.take(hang(rank, 1, file))
    assert collected.tick() is None
    now_s = 16.5
    record = collected.tick()
    assert record is not None
    assert [dump.threads[0].stack for dump in record.dumps] == [0, 0, 1]
    assert len(record.stacks) == 2
    assert record.silent == (3,)
    assert collected.tick() is None


def test_round_writes_progress_only_of_ranks_that_were_late() -> None:
    now_s = 0.0
    collected = HangRound("r", 1, range(2), clock=lambda: now_s)
    collected.take(hang(0, PROGRESS, "a.py"))
    now_s = 2.0
    assert collected.tick() is None
    collected.take(hang(0, 1, "a.py"))
    now_s = 4.0
    assert collected.tick() is not None
    collected.take(hang(0, PROGRESS, "a.py"))
    now_s = 6.0
    record = collected.tick()
    assert record is not None
    assert [dump.number for dump in record.dumps] == [PROGRESS]
