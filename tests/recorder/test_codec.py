"""Every event can be encoded as a line and decoded to an equal one."""

from __future__ import annotations

import json
import math
import random
import types
import typing
from enum import Enum
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from cockpit.model.cluster import KubernetesNode
from cockpit.model.drill import Recovery
from cockpit.model.event import (
    Event,
    HistoryLoaded,
    KubernetesNodesListed,
    LogLines,
    Notice,
    RankSampled,
    RunSeen,
    SourceHealth,
)
from cockpit.model.run import RankSample, RunState, RunSummary
from cockpit.recorder.codec import KINDS, MOMENTS, CodecError, decode, encode, from_plain, to_plain
from tests.tui.simulated import _digits, _wide


def made(hint: Any, chance: random.Random) -> Any:
    """Some value of a type that the model uses."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        return made(arguments[0], chance) if chance.random() < 0.6 else None
    if origin is tuple and arguments[-1] is not Ellipsis:
        return tuple(made(each, chance) for each in arguments)
    if origin is tuple:
        return tuple(made(arguments[0], chance) for _ in range(chance.randrange(4)))
    if origin is dict:
        return {f"k{n}": made(arguments[1], chance) for n in range(chance.randrange(3))}
    if isinstance(hint, type) and issubclass(hint, Struct):
        return filled(hint, chance)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return chance.choice(list(hint))
    if hint is bool:
        return chance.random() < 0.5
    if hint is int:
        return chance.randrange(10**9)
    if hint is float:
        return chance.choice([chance.random() * 1e9, math.inf, -math.inf, 0.0])
    assert hint is str
    return chance.choice(["", "one", "zwei – drei", "two\nlines"])


def filled(kind: type[Struct], chance: random.Random) -> Any:
    hints = typing.get_type_hints(kind)
    values = {name: made(hints[name], chance) for name in kind.__struct_fields__}
    for name in MOMENTS & values.keys():
        values[name] = chance.random() * 1e9
    if kind is HistoryLoaded:
        values["values"] = values["times"]
    return kind(**values)


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_every_kind_of_event_comes_back_the_same(kind: type[Event]) -> None:
    chance = random.Random(kind.__name__)
    for _ in range(50):
        event = replace(filled(kind, chance), at_s=chance.random() * 1e9)
        assert decode(encode(event)) == (event.at_s, event)


@pytest.mark.parametrize("script", [_digits(80.0, 120.0), _wide(64, 30.0)], ids=["2", "64"])
def test_a_whole_run_comes_back_the_same(script: typing.Iterator[Event]) -> None:
    events = list(script)
    back = [decode(encode(event)) for event in events]
    assert back == [(event.at_s, event) for event in events]


def test_nan_survives_and_an_unset_field_stays_none() -> None:
    sample = RankSample(3, 1, 5.0, 10, 1, 10, loss=math.nan)
    event = RankSampled(at_s=5.0, source="telemetry", run_id="r", samples=(sample, sample))
    found = decode(encode(event))
    assert found is not None
    back = found[1]
    assert isinstance(back, RankSampled)
    assert math.isnan(back.samples[1].loss or 0)
    assert back.samples[0].data_wait_s is None


def test_an_event_may_belong_to_another_moment_than_its_own_clock_reports() -> None:
    event = LogLines(at_s=10.0, source="logs", stream="job:a", lines=("x",))
    assert decode(encode(event, 7.5)) == (7.5, event)


def test_a_kind_from_a_later_version_is_skipped_and_so_is_a_field() -> None:
    assert decode('["CoffeeBrewed",1.0,"kitchen",{"cups":2}]') is None
    line = json.loads(
        encode(RunSeen(at_s=1, source="t", run_id="r", name="n", state=RunState.RUNNING))
    )
    line[3]["mood"] = "good"
    found = decode(json.dumps(line))
    assert found is not None
    assert found[1] == RunSeen(at_s=1, source="t", run_id="r", name="n", state=RunState.RUNNING)


def test_kubernetes_nodes_of_an_earlier_recording_are_read() -> None:
    line = '["MachinesListed",5.0,"backend",{"machines":[1,{},{"name":"gpu-1","ready":true}]}]'
    seen = KubernetesNodesListed(
        at_s=5.0, source="backend", nodes=(KubernetesNode("gpu-1", ready=True),)
    )
    assert decode(line) == (5.0, seen)
    assert decode(encode(seen)) == (5.0, seen)


def test_missing_data_of_an_earlier_drill_is_read() -> None:
    measured = replace(filled(Recovery, random.Random(1)), missing_data=("the backend was away",))
    stored = json.loads(json.dumps(to_plain(measured)))
    assert stored["unseen"] == ["the backend was away"]
    assert from_plain(Recovery, stored).missing_data == ("the backend was away",)


def test_text_from_another_machine_cannot_take_hold_of_the_terminal() -> None:
    notice = Notice(
        at_s=1, source="x", kind="Pod", name="p\x1b]0;evil\x07q", reason="R", message=""
    )
    found = decode(encode(notice))
    assert found is not None
    assert isinstance(found[1], Notice)
    assert found[1].name == "pq"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "nonsense",
        "{}",
        "[]",
        "[[]]",
        '["RunSeen"]',
        '["RunSeen",1,"t",{}]',
        '["RunSeen","now","t",{"run_id":"r","name":"n","state":"RUNNING"}]',
        '["RunSeen",1,"t",{"run_id":7,"name":"n","state":"RUNNING"}]',
        '["RunSeen",1,"t",{"run_id":"r","name":"n","state":"DANCING"}]',
        '["RankSampled",1,"t",{"run_id":"r","samples":[2,{"rank":[1]},{}]}]',
        '["RankSampled",1,"t",{"run_id":"r","samples":[1000000000,{},{"rank":1}]}]',
        '["PodsListed",1,"t",{"pods":7}]',
        '["LogLines",1,"t",{"stream":"s","lines":"abc"}]',
        "[" * 100_000,
    ],
)
def test_a_line_that_is_no_event_is_refused(line: str) -> None:
    with pytest.raises(CodecError):
        decode(line)


@pytest.mark.parametrize(
    "dumps",
    [
        [20_000, {}, {"rank": 1, "threads": [90_000, {}, {"name": "t", "stack": 0}]}],
        [
            1_000,
            {"threads": [[90_000, {}, {"name": "t", "stack": 0}]] * 1_000},
            {"rank": 1},
        ],
    ],
    ids=["repeated", "listed"],
)
def test_a_short_line_cannot_decode_to_very_many_rows(dumps: list[Any]) -> None:
    fields = {"run_id": "r", "attempt": 1, "dumps": dumps}
    with pytest.raises(CodecError, match="more than 1,000,000 rows"):
        decode(json.dumps(["RanksDumped", 1.0, "telemetry", fields]))


def test_a_list_that_every_row_repeats_counts_for_each() -> None:
    group = {"name": "default", "members": list(range(20_000))}
    line = json.dumps(
        ["RanksDumped", 1.0, "t", {"run_id": "r", "attempt": 1, "groups": [9, {}, group]}]
    )
    found = decode(line)
    assert found is not None
    assert encode(found[1]) == line.replace(" ", "")
    with pytest.raises(CodecError, match="rows"):
        decode(line.replace("[9,", "[90,"))


def test_random_damage_is_refused_or_still_an_event() -> None:
    chance = random.Random(7)
    lines = [encode(event) for event in _digits(80.0, 100.0)]
    for _ in range(5_000):
        line = list(chance.choice(lines))
        for _ in range(chance.randrange(1, 4)):
            line[chance.randrange(len(line))] = chr(chance.randrange(32, 127))
        try:
            found = decode("".join(line))
        except CodecError:
            continue
        assert found is None or isinstance(found[1], Event)


def test_a_summary_comes_back_the_same() -> None:
    summary = RunSummary("r", "digits", "digits", RunState.FINISHED, 2, 2.0, steps=7)
    assert from_plain(RunSummary, to_plain(summary)) == summary
    with pytest.raises(CodecError):
        from_plain(RunSummary, {"run_id": 5})


def test_source_of_an_earlier_name_has_its_present_one() -> None:
    decoded = decode('["SourceHealth",5.0,"deaths",{"ok":true}]')
    assert decoded == (5.0, SourceHealth(at_s=5.0, source="failures", ok=True))
