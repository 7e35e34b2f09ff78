"""The report of a drill: what it shows, in HTML, Markdown and JSON alike."""

from __future__ import annotations

from msgspec.structs import replace

from cockpit.model.drill import KeptCurve, KeptDrill, Verdict
from cockpit.report.data import data
from cockpit.report.document import Tone
from cockpit.report.drill_report import drill_report
from cockpit.report.html import html
from cockpit.report.markdown import markdown
from tests.recorder.test_drills import record

TIMES = tuple(41.0 + second for second in range(120))
CURVES = (
    KeptCurve("loss", TIMES, tuple(1.0 / at for at in TIMES)),
    KeptCurve("samples_per_s", TIMES, tuple(200.0 for _ in TIMES)),
)
KEPT = KeptDrill(record(), "demo", CURVES)
EARLIER = [record(number, 10.0) for number in range(-5, 0)]


def test_a_report_has_timeline_phases_curves_hypothesis_and_what_was_before() -> None:
    document = drill_report([KEPT], EARLIER)
    assert document.tone is Tone.GOOD
    assert [section.name for section in document.sections] == [
        "numbers", "phases", "curves", "hypothesis", "compared", "drill",
    ]  # fmt: skip
    for text in (html(document), markdown(document)):
        for message in ("first new step", "telemetry", "replicas", "checkpointed", "fast", "demo"):
            assert message in text
    assert "since 60 s before the fault" in html(document)
    assert "<desc>1 fault over " in html(document)
    assert "<script" not in html(document)
    assert "http://" not in html(document).replace("http://www.w3.org", "")
    assert data(document)["name"] == "Drill pod-kill"
    assert data(document)["sections"]["numbers"]["steps_lost"] == 12


def test_a_slower_drill_is_marked_beside_the_earlier_ones() -> None:
    slow = replace(KEPT, record=record(1, 40.0))
    assert "worse than usual" in markdown(drill_report([slow], EARLIER))
    assert "worse than usual" not in markdown(drill_report([KEPT], EARLIER[:1]))


def test_a_game_day_has_a_row_and_the_sections_of_each_drill() -> None:
    def of_day(number: int, verdict: Verdict) -> KeptDrill:
        return replace(KEPT, record=replace(record(number, verdict=verdict), game_day="smoke/d-1"))

    document = drill_report([of_day(1, Verdict.PASSED), of_day(2, Verdict.FAILED)], [])
    assert document.title == "Game day smoke"
    assert document.verdict == "1 of 2 drills passed."
    assert document.tone is Tone.BAD
    names = [section.name for section in document.sections]
    assert names[0] == "drills"
    assert {"phases-1", "phases-2"} <= set(names)
    assert len(names) == len(set(names))


def test_a_drill_that_was_refused_is_reported_too() -> None:
    refused = replace(record(verdict=Verdict.REFUSED), drills=(), recoveries=(), probes=())
    text = markdown(drill_report([KeptDrill(refused)], []))
    assert "Refused: why" in text


def test_text_of_a_pod_is_escaped_in_the_report() -> None:
    evil = "<script>alert(1)</script>\x1b[31m`|"
    bad = replace(record(), why=evil, notes=(evil,), name=evil)
    for text in (
        html(drill_report([replace(KEPT, record=bad)], [])),
        markdown(drill_report([replace(KEPT, record=bad)], [])),
    ):
        assert "<script>alert" not in text
        assert "\x1b" not in text
