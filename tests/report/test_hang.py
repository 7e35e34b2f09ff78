"""The report of a run that hangs."""

from __future__ import annotations

from msgspec.structs import replace

from cockpit.model.event import RunSeen
from cockpit.model.run import RunState
from cockpit.report.document import Facts, Table
from cockpit.report.html import html
from cockpit.report.markdown import markdown
from cockpit.report.run_report import report
from cockpit.report.sections.hang import hang
from cockpit.report.time_range import extent
from tests.insight.test_hang import dump, hung


def test_hang_has_verdict_groups_and_stacks() -> None:
    store = hung([dump(1, 0, 2, waits=False), dump(0, 1, 3, waits=True)])
    run = store.runs["r"]
    facts, groups, stacks = hang(store, run, 101.0).blocks
    assert isinstance(facts, Facts)
    known = {fact.name: fact.value for fact in facts.facts}
    assert str(known["sentence"]).startswith("Rank 1 never called all_reduce #3 of group default")
    assert (known["kind"], known["confidence"]) == ("user code", "high")
    assert "cockpit kill 1" in str(known["todo"])
    assert isinstance(groups, Table)
    assert [row[1:] for row in groups.rows] == [
        (2, "", "float32 [1024]", "rank 1"),
        (3, "all_reduce", "float32 [1024]", "rank 0"),
    ]
    assert isinstance(stacks, Table)
    assert stacks.rows[0] == ("rank 1", "cause", "user code", "time.sleep ← loop (train.py:11)")
    document = report(store, run)
    assert "never called all_reduce" in html(document)
    assert "never called all_reduce" in markdown(document)


def test_report_of_a_run_that_hangs_counts_the_time_until_its_last_dump() -> None:
    store = hung([dump(1, 0, 2, waits=False), dump(0, 1, 3, waits=True)])
    assert extent(store.runs["r"]).end_s == 100.0


def test_run_that_finished_or_is_not_late_has_no_section() -> None:
    dumps = [dump(1, 0, 2, waits=False), dump(0, 1, 3, waits=True)]
    early = hung([replace(one, idle_s=11.0) for one in dumps])
    assert hang(early, early.runs["r"], 101.0).blocks == ()
    store = hung(dumps)
    store.apply(RunSeen(at_s=102.0, source="t", run_id="r", name="", state=RunState.FINISHED))
    assert hang(store, store.runs["r"], 103.0).blocks == ()
