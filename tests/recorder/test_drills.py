"""Completed drills: stored, read tolerantly, compared, and written as XML."""

from __future__ import annotations

import json
import math
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from cockpit.insight.recovery.drill_comparison import alike, compared, curves, numbers
from cockpit.model.drill import (
    Continuity,
    Drill,
    DrillRecord,
    Instant,
    KeptCurve,
    KeptDrill,
    Milestone,
    ProbeResult,
    Recovery,
    Stage,
    Verdict,
)
from cockpit.model.error import UsageError
from cockpit.recorder import drills as kept_drills
from cockpit.recorder.drills import DrillHistory
from cockpit.report.drill_junit import Case, case_of, junit
from tests.events import DRILL, RUN, before_the_kill, reduced


def recovered(first_step_s: float, drill: Drill = DRILL) -> Recovery:
    return Recovery(
        drill,
        detected_s=1.5,
        attempt_ended_s=2.0,
        first_step_s=first_step_s,
        resumed_step=41,
        last_step=52,
        instants=(
            Instant(Milestone.INJECTED, 0.0, "user"),
            Instant(Milestone.DETECTED, 1.5, "ray"),
            Instant(Milestone.FIRST_STEP, first_step_s, "telemetry"),
        ),
        continuity=Continuity(0.5, 0.52, 0.1, True),
    )


def record(
    number: int = 1, first_step_s: float = 12.0, verdict: Verdict = Verdict.PASSED, **changes: str
) -> DrillRecord:
    drill = replace(DRILL, id=f"drill-a{number}.1", workload="checkpointed", profile="fast")
    drill = replace(drill, injected_s=100.0 + number, **changes)
    return DrillRecord(
        f"drill-a{number}", "pod-kill", "local:t", 99.0 + number, 130.0 + number, verdict, "why",
        (drill,), (recovered(first_step_s, drill),),
        ((Stage.PREPARING, 99.0), (Stage.ENDED, 130.0)),
        (ProbeResult("replicas-ready", "after", None, "away", 120.0),), ("a note",),
        asked=("pod-kill",),
    )  # fmt: skip


def kept(number: int = 1, **changes: object) -> KeptDrill:
    curve = KeptCurve("loss", (100.0, 101.0), (0.5, math.nan))
    return KeptDrill(record(number, **changes), "demo", (curve,))  # type: ignore[arg-type]


def test_a_drill_is_read_back_as_it_was_kept() -> None:
    history = DrillHistory()
    history.keep(kept())
    read, unreadable = history.all()
    assert unreadable == []
    assert read[0].record == record()
    assert read[0].curves[0].times == (100.0, 101.0)
    assert math.isnan(read[0].curves[0].values[1])
    (path,) = history.directory.glob("*.json")
    assert path.stat().st_mode & 0o077 == 0


def test_drill_of_a_newer_version_is_read_without_its_unknown_fields() -> None:
    history = DrillHistory()
    history.keep(kept())
    (path,) = history.directory.glob("*.json")
    raw = json.loads(path.read_text())
    raw["weather"] = "fine"
    raw["record"]["mood"] = {"of": "the day"}
    path.write_text(json.dumps(raw))
    assert history.all()[0][0].record == record()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"record": 3}', '{"record": {"verdict": "new"}}'])
def test_a_file_that_cannot_be_read_is_named_and_the_others_are_there(text: str) -> None:
    history = DrillHistory()
    history.keep(kept())
    (history.directory / "0-torn.json").write_text(text)
    read, unreadable = history.all()
    assert len(read) == 1
    assert [one.path.name for one in unreadable] == ["0-torn.json"]
    assert unreadable[0].why


def test_the_history_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_drills, "KEPT", 3)
    history = DrillHistory()
    for number in range(5):
        history.keep(kept(number))
    assert [one.record.id for one in history.all()[0]] == ["drill-a2", "drill-a3", "drill-a4"]


def test_a_drill_is_found_by_its_id_its_beginning_its_day_or_as_the_last() -> None:
    history = DrillHistory()
    for number in (1, 2):
        one = kept(number)
        history.keep(replace(one, record=replace(one.record, game_day="smoke/day-1")))
    assert [one.record.id for one in history.find("drill-a1")] == ["drill-a1"]
    assert [one.record.id for one in history.find("a2")] == ["drill-a2"]
    assert [one.record.id for one in history.find("last")] == ["drill-a2"]
    assert [one.record.id for one in history.find("day-1")] == ["drill-a1", "drill-a2"]
    with pytest.raises(UsageError, match="begins several"):
        history.find("a")
    with pytest.raises(UsageError, match="There is no drill"):
        history.find("zz")


def test_the_last_is_the_newest_that_broke_something_where_there_is_one() -> None:
    history = DrillHistory()
    refused = replace(record(5, verdict=Verdict.REFUSED), drills=(), recoveries=())
    history.keep(KeptDrill(refused))
    assert [one.record.id for one in history.find("last")] == ["drill-a5"]
    history.keep(kept(2))
    assert [one.record.id for one in history.find("last")] == ["drill-a2"]
    assert [one.record.id for one in history.find("a5")] == ["drill-a5"]


def test_nothing_is_kept_yet_is_no_error(tmp_path: Path) -> None:
    assert DrillHistory(tmp_path / "none").all() == ([], [])


def test_only_measured_drills_of_the_same_kind_before_it_are_compared() -> None:
    others = [
        record(1),
        record(2, fault="rank-kill"),
        record(3, workload="other"),
        record(4, profile="default"),
        record(5, verdict=Verdict.ABORTED),
        replace(record(6), recoveries=()),
        record(9),
    ]
    others[1] = replace(others[1], asked=("rank-kill",))
    assert [one.id for one in alike(record(7), others)] == ["drill-a1"]


def test_a_drill_much_slower_than_the_others_is_a_regression() -> None:
    others = [record(n, 10.0 + n % 3) for n in range(1, 8)]
    slow = {m.name: m for m in compared(record(9, 20.0), others)}["first new step"]
    assert (slow.earlier, slow.median, slow.regression) == (7, 11.0, True)
    usual = {m.name: m for m in compared(record(9, 12.5), others)}["first new step"]
    assert not usual.regression


def test_a_negligible_difference_is_no_regression() -> None:
    others = [record(n, 10.0) for n in range(1, 8)]
    found = {m.name: m for m in compared(record(9, 10.9), others)}["first new step"]
    assert (found.spread, found.regression) == (0.0, False)
    found = {m.name: m for m in compared(record(9, 11.2), others)}["first new step"]
    assert found.regression


def test_two_earlier_drills_are_too_few_to_judge_by() -> None:
    others = [record(n, 10.0) for n in (1, 2)]
    found = {m.name: m for m in compared(record(9, 60.0), others)}["first new step"]
    assert (found.earlier, found.regression) == (2, False)


def test_of_several_drills_at_once_the_worst_number_counts() -> None:
    both = replace(record(), recoveries=(recovered(12.0), recovered(30.0)))
    assert numbers(both)["first new step"] == 30.0


def test_the_curves_around_a_drill_are_cut_and_thinned() -> None:
    store = reduced(before_the_kill())
    found = {curve.name: curve for curve in curves(store, RUN, 96.0, 200.0)}
    assert found["loss"].times == (99.0,)
    assert found["samples_per_s"].values == (200.0,)
    assert curves(store, "nobody", 0.0, 1e9) == ()


def test_a_drill_is_a_test_case_with_what_was_measured() -> None:
    failed, broken = record(2, verdict=Verdict.FAILED), record(3, verdict=Verdict.BROKEN)
    cases = [case_of(record()), case_of(failed), case_of(broken), Case("w", 1.0, None, "left out")]
    suite = ElementTree.fromstring(junit("smoke", 0.0, cases))
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4", "failures": "1", "errors": "1", "skipped": "1",
    }  # fmt: skip
    passed, one, other, left = suite.findall("testcase")
    assert passed.find("failure") is None
    text = passed.findtext("system-out") or ""
    assert "pod-kill first new step: 12.0 s (telemetry)" in text
    assert "pod-kill steps lost: 12" in text
    assert one.find("failure") is not None
    assert other.find("error") is not None
    assert left.find("skipped") is not None


def test_junit_has_no_control_characters_and_none_that_xml_lacks() -> None:
    text = junit("s\x00u", 0.0, [Case("<a&\x1b[31m\ud800\uffffb\x9b2J>", 1.0, False, "\x08]]>")])
    case = ElementTree.fromstring(text).find("testcase")
    assert case is not None
    assert case.get("name") == "<a&\ufffd\ufffdb>"


def test_junit_has_no_secret_of_a_failure_or_of_an_output() -> None:
    secret = "s3same-0pen"
    why = f"broken: python train.py --token {secret}"
    case = Case("a", 1.0, False, why, output=("first line", f"HF_TOKEN={secret}"))
    text = junit("smoke", 0.0, [case])
    assert secret not in text
    assert "--token ***" in text
    found = ElementTree.fromstring(text).find("testcase")
    assert found is not None
    assert found.findtext("system-out") == "first line\nHF_TOKEN=***"
