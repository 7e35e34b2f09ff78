"""The stream's lines: what is written is read unchanged, and foreign lines are detected."""

from __future__ import annotations

import json
import math

import pytest

from training.telemetry.wire import (
    VERSION,
    AttemptEnd,
    AttemptStart,
    Body,
    Heal,
    Notice,
    Quorum,
    RanksReplaced,
    Record,
    Report,
    Run,
    Steps,
    Tick,
    WireError,
    Worker,
    decode,
    encode,
)

BODIES: tuple[Body, ...] = (
    Run(run="ab", name="digits", state="RUNNING", job="01000000", submission="j", world_size=2),
    AttemptStart(
        run="ab",
        attempt=1,
        workers=(
            Worker(rank=0, node_id="n", node_ip="10.0.0.1", pid=7, gpu_ids=(3, 4)),
            Worker(rank=1),
        ),
    ),
    AttemptEnd(run="ab", attempt=1, reason='rank 1: "died"\non its node'),
    RanksReplaced(run="ab", attempt=1, workers=(Worker(rank=1, pid=9),)),
    Quorum(
        run="ab",
        attempt=1,
        number=3,
        replicas=3,
        members=(0, 1, 2),
        step=40,
        heals=(Heal(rank=1, source=0),),
    ),
    Notice(run="ab", attempt=1, rank=3, reason="CheckpointDamaged", message="c is no good"),
    Tick(
        run="ab",
        ranks=(
            Steps(rank=0, attempt=1, t=1.5, step=9, first_step=4, steps_total=9, loss=0.25),
            Steps(rank=1, attempt=1, t=1.5, step=9, first_step=4, steps_total=9),
        ),
    ),
    Report(run="ab", attempt=2, metrics={"accuracy": 0.5, "été": 1.0}, checkpoint="/c"),
)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.KIND)
def test_wire_line_round_trips(body: Body) -> None:
    record = Record(7, 1763712000.25, body)
    line = encode(record)
    assert "\n" not in line
    assert decode(line) == record
    assert decode(line.encode()) == record


def test_nan_and_the_infinities_travel_in_strict_json() -> None:
    metrics = {"a": math.nan, "b": math.inf, "c": -math.inf}
    line = encode(Record(1, 0.0, Report(run="r", attempt=1, metrics=metrics)))
    assert "NaN" not in line
    assert "Infinity" not in line
    read = decode(line)
    assert read is not None
    assert isinstance(read.body, Report)
    assert math.isnan(read.body.metrics["a"])
    assert (read.body.metrics["b"], read.body.metrics["c"]) == (math.inf, -math.inf)


@pytest.mark.parametrize("cut", range(0, 150, 7))
def test_a_torn_line_is_an_error_and_not_another_record(cut: int) -> None:
    line = encode(Record(1, 0.0, BODIES[0]))
    with pytest.raises(WireError):
        decode(line[: min(cut, len(line) - 1)])


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe",
        "[]",
        "null",
        "7",
        "{}",
        '{"v": "1"}',
        "[" * 100_000,
        '{"v":1,"kind":"run","run":"r","t":0}',
        '{"v":1,"seq":1e999,"t":0,"kind":"run","run":"r"}',
        '{"v":1,"seq":1,"t":0,"kind":"run"}',
        '{"v":1,"seq":1,"t":0,"kind":"report","run":"r","attempt":1,"metrics":[1]}',
        '{"v":1,"seq":1,"t":0,"kind":"report","run":"r","attempt":1,"metrics":{"a":"b"}}',
        '{"v":1,"seq":1,"t":0,"kind":"steps","run":"r","ranks":[7]}',
        '{"v":1,"seq":1,"t":0,"kind":"steps","run":"r","ranks":5}',
        '{"v":1,"seq":1,"t":0,"kind":"steps","run":"r","ranks":[{"rank":"x"}]}',
    ],
)
def test_garbage_is_a_wire_error(line: str | bytes) -> None:
    with pytest.raises(WireError):
        decode(line)


def test_a_later_version_is_refused_with_both_numbers() -> None:
    with pytest.raises(WireError, match=rf"version {VERSION + 1}.*up to {VERSION}"):
        decode(json.dumps({"v": VERSION + 1, "seq": 1, "t": 0, "kind": "run", "run": "r"}))


def test_kinds_and_fields_of_the_future_are_skipped() -> None:
    assert decode('{"v":1,"seq":1,"t":0,"kind":"hologram"}') is None
    read = decode('{"v":1,"seq":1,"t":0,"kind":"run","run":"r","colour":"blue"}')
    assert read == Record(1, 0.0, Run(run="r"))


def test_half_a_character_and_a_number_without_end_do_not_get_in() -> None:
    read = decode('{"v":1,"seq":1,"t":0,"kind":"run","run":"a\\ud800b"}')
    assert read == Record(1, 0.0, Run(run="a?b"))
    with pytest.raises(WireError, match="out of range"):
        decode('{"v":1,"seq":1,"t":0,"kind":"attempt_end","run":"r","attempt":1' + "0" * 30 + "}")


@pytest.mark.parametrize(
    "fields",
    [
        '"kind":"run","run":"r","t":1e300',
        '"kind":"run","run":"r","t":"nan"',
        '"kind":"run","run":"r","t":-1e12',
        '"kind":"run","run":"r","t":0,"world_size":-1',
        '"kind":"run","run":"r","t":0,"world_size":1e18',
        '"kind":"run","run":"r","t":0,"name":["a"]',
        '"kind":"attempt_start","run":"r","t":0,"attempt":1,"workers":[{"rank":-1}]',
        '"kind":"attempt_end","run":"r","t":0,"attempt":4000000000',
        '"kind":"steps","run":"r","t":0,"ranks":[{"rank":0,"attempt":1,"t":1e300,"step":1,'
        '"first_step":1,"steps_total":1}]',
        '"kind":"steps","run":"r","t":0,"silent":[' + "9" * 400 + "]",
        '"kind":"trials","experiment":"e","t":0,"trials":[{"id":"t","started_s":1e300}]',
    ],
)
def test_number_out_of_range_is_a_bad_record(fields: str) -> None:
    """An invalid time or rank number would break the display."""
    with pytest.raises(WireError):
        decode('{"v":1,"seq":1,' + fields + "}")
