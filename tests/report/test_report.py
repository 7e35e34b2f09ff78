"""The content of a run's report, before it is formatted."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from cockpit.insight.metrics.progress import as_it_ran
from cockpit.insight.metrics.summary import job_of, summary
from cockpit.model.alert import Alert, Finding, Severity
from cockpit.model.event import AlertRaised, MetricsReported, RankSampled, RunSeen
from cockpit.model.run import Checkpoint, Phase, RunState, RunSummary
from cockpit.report.charts.chart import chart_svg
from cockpit.report.charts.curves import marks
from cockpit.report.data import data
from cockpit.report.document import Chart, Document, Facts, MarkKind, Table, Text, Tone
from cockpit.report.html import html
from cockpit.report.run_report import report
from cockpit.report.sections.overview import verdict
from cockpit.report.time_range import extent, phase_spans
from cockpit.store.run import AttemptView, RunView
from cockpit.store.store import Store
from tests.events import RUN as SMALL
from tests.events import before_the_kill, reduced, the_recovery
from tests.growth import growth
from tests.report.runs import RUN, START_S, large, rich


@pytest.fixture(scope="module")
def store() -> Store:
    return rich()


@pytest.fixture(scope="module")
def document(store: Store) -> Document:
    return report(store, store.runs[RUN], read_from="a.cockpit")


def table(document: Document, name: str) -> list[dict[str, object]]:
    for section in document.sections:
        for block in section.blocks:
            if isinstance(block, Table) and block.name == name:
                names = [column.name for column in block.columns]
                return [dict(zip(names, row, strict=True)) for row in block.rows]
    raise AssertionError(f"no table {name}")


def key_numbers(document: Document) -> dict[str, object]:
    numbers = data(document)["sections"]["numbers"]
    assert isinstance(numbers, dict)
    return numbers


def test_the_verdict_reports_the_run_in_one_line(document: Document) -> None:
    assert document.tone is Tone.MIXED
    assert document.verdict.startswith("Finished after 10 m 00 s; 5,100 steps, loss 3.001 → 0.0515")
    assert ", 3 attempts, 260 steps repeated, goodput " in document.verdict


def test_a_run_that_failed_reports_why_and_one_that_continues_reports_it() -> None:
    events = [*before_the_kill(), *the_recovery()]
    going = report(store := reduced(events), store.runs[SMALL])
    assert going.tone is Tone.GOING
    assert going.verdict.startswith("Still running after")
    left = report(store, store.runs[SMALL], left=True)
    assert left.tone is Tone.GOING
    assert left.verdict.startswith("The recording ends after ")
    assert ", before the end of the run, which was running; " in left.verdict
    failed = RunSeen(
        at_s=130.0,
        source="telemetry",
        run_id=SMALL,
        name="demo",
        state=RunState.ERRORED,
        message="CUDA out of memory.",
    )
    store.apply(failed)
    reported = report(store, store.runs[SMALL])
    assert reported.tone is Tone.BAD
    assert reported.verdict.startswith("Failed after 50.0 s: CUDA out of memory; ")


def one_attempt(state: RunState, *severities: Severity) -> Document:
    """A run of one attempt, with an alert of each severity."""
    store = reduced(before_the_kill())
    store.apply(RunSeen(at_s=130.0, source="telemetry", run_id=SMALL, name="demo", state=state))
    for severity in severities:
        finding = Finding("straggler", "rank 1", severity, "slow", run_id=SMALL)
        alert = Alert(f"straggler/{severity}", finding, 120.0)
        store.apply(AlertRaised(at_s=120.0, source="insight", alert=alert))
    return report(store, store.runs[SMALL])


@pytest.mark.parametrize(
    ("severities", "tone"),
    [
        ((), Tone.GOOD),
        ((Severity.INFO,), Tone.GOOD),
        ((Severity.INFO, Severity.WARNING), Tone.MIXED),
        ((Severity.CRITICAL,), Tone.MIXED),
    ],
)
def test_only_alerts_that_are_more_than_information_spoil_a_finished_run(
    severities: tuple[Severity, ...], tone: Tone
) -> None:
    assert one_attempt(RunState.FINISHED, *severities).tone is tone


def test_run_in_an_unknown_state_is_not_still_unknown() -> None:
    assert one_attempt(RunState.UNKNOWN).verdict.startswith("State unknown after ")
    store = reduced(before_the_kill())
    run = store.runs[SMALL]
    run.state = RunState.UNKNOWN
    text = report(store, run, left=True).verdict
    assert ", before the end of the run, whose state was unknown; " in text


def test_one_step_is_no_steps() -> None:
    run = RunView("r", "r", state=RunState.FINISHED)
    run.attempts[1] = AttemptView(1, first_step=1, last_step=1)
    run.attempts[2] = AttemptView(2, first_step=1, last_step=1)
    text, _ = verdict(Store(), run, None)
    assert "1 step, 2 attempts, 1 step repeated" in text


def test_key_numbers_are_those_of_the_curves(document: Document) -> None:
    numbers = key_numbers(document)
    assert numbers["duration_s"] == 600.0
    assert numbers["steps"] == 5_100
    assert numbers["samples_per_s"] == pytest.approx(8 * 320, rel=0.01)
    assert numbers["step_time_s"] == pytest.approx(0.1, rel=0.02)
    assert numbers["mfu_percent"] == pytest.approx(41, rel=0.02)
    assert (numbers["attempts"], numbers["steps_lost"], numbers["checkpoints"]) == (3, 260, 10)
    assert 60 < float(str(numbers["goodput_percent"])) < 95


def test_models_of_mlflow_are_reported_with_their_aliases(document: Document) -> None:
    [tracked] = [section for section in document.sections if section.name == "tracked"]
    [facts] = tracked.blocks
    assert isinstance(facts, Facts)
    assert {fact.name: fact.value for fact in facts.facts}["models"] == "demo 3 (best)"


def test_attempts_report_their_steps_and_what_was_lost(document: Document) -> None:
    rows = table(document, "attempts")
    assert [row["first_step"] for row in rows] == [1, 1_701, 3_401]
    assert [row["steps_lost"] for row in rows] == [180, 80, None]
    assert rows[1]["reason"] == "preempted"
    assert rows[2]["ended_s"] == START_S + 600


def test_phases_and_goodput_each_add_up_to_the_run(store: Store, document: Document) -> None:
    spans = phase_spans(store.runs[RUN])
    assert sum(span.duration_s for span in spans) == pytest.approx(600.0)
    assert sum(float(str(row["share_percent"])) for row in table(document, "phases")) == (
        pytest.approx(100.0)
    )
    causes = table(document, "goodput")
    assert causes[0]["cause"] == "useful"
    assert sum(float(str(row["duration_s"])) for row in causes) == pytest.approx(600.0, abs=1.0)


def test_without_phases_the_states_of_the_run_stand_for_them() -> None:
    store = reduced([*before_the_kill(), *the_recovery()])
    spans = phase_spans(store.runs[SMALL])
    assert [(span.attempt, span.name) for span in spans] == [
        (1, "initializing"),
        (1, "scheduling"),
        (1, "running"),
        (2, "restarting"),
        (2, "running"),
    ]


def test_a_drill_has_its_recovery(document: Document) -> None:
    (row,) = table(document, "drills")
    assert row["first_step_s"] == 22.0
    assert row["steps_lost"] == 180
    assert row["outcome"] == "recovered"


def test_a_run_that_is_over_has_its_bottleneck_too(store: Store, document: Document) -> None:
    assert as_it_ran(store.runs[RUN]).state is RunState.RUNNING
    assert store.runs[RUN].state is RunState.FINISHED, "the run itself stays as it is"
    shares = {
        str(row["part"]): float(str(row["share_percent"])) for row in table(document, "bottleneck")
    }
    assert sum(shares.values()) == pytest.approx(100.0)
    assert shares["input"] == pytest.approx(10.0, abs=3.0)


def test_alerts_report_when_they_came_and_went(document: Document) -> None:
    rows = table(document, "alerts")
    assert [row["subject"] for row in rows] == ["rank 3", "rank 5"]
    assert [row["cleared_s"] for row in rows] == [START_S + 410, None]


def test_trials_are_in_the_order_of_what_they_optimise(document: Document) -> None:
    rows = table(document, "trials")
    assert [row["trial"] for row in rows] == ["trial_2", "trial_1", "trial_0"]


def test_all_that_happened_is_marked_on_the_charts(store: Store, document: Document) -> None:
    found = marks(store, store.runs[RUN])
    assert {mark.kind for mark in found} == set(MarkKind)
    assert [mark.at_s for mark in found] == sorted(mark.at_s for mark in found)
    names = {b.name for s in document.sections for b in s.blocks if isinstance(b, Chart)}
    assert {"loss", "samples_per_s", "step_time_s", "gpu_memory_bytes", "memory_bytes"} <= names


def test_a_rank_that_is_an_outlier_of_a_thousand_is_listed_and_the_others_are_not() -> None:
    store = reduced(large(seconds=120))
    rows = table(report(store, store.runs[RUN]), "ranks")
    assert [row["rank"] for row in rows] == [13, 617]
    assert "silent" in str(rows[0]["why"])
    assert "step time is high" in str(rows[1]["why"])


def test_a_thousand_ranks_that_are_alike_have_no_outliers() -> None:
    events = [
        replace(event, silent=()) if isinstance(event, RankSampled) else event
        for event in large(seconds=60)
    ]
    store = reduced(events)
    store.runs[RUN].ranks.pop(617)
    ranks = next(s for s in report(store, store.runs[RUN]).sections if s.name == "ranks")
    assert not any(isinstance(b, Table) and b.name == "ranks" for b in ranks.blocks)


def test_a_rank_with_a_loss_that_is_no_number_is_among_the_outliers() -> None:
    store = reduced(large(seconds=60))
    rank = store.runs[RUN].ranks[400]
    assert rank.sample is not None
    rank.sample = replace(rank.sample, loss=math.nan)
    rows = table(report(store, store.runs[RUN]), "ranks")
    assert "its loss is not finite" in str(next(r["why"] for r in rows if r["rank"] == 400))


def test_a_run_of_which_next_to_nothing_is_known_has_a_report() -> None:
    state = RunSeen(at_s=5.0, source="t", run_id="x", name="", state=RunState.UNKNOWN)
    store = reduced([state])
    reported = html(report(store, store.runs["x"]))
    assert "Run x" in reported
    assert "NaN" not in reported
    bare = Store()
    bare._run("y")
    assert "Run y" in html(report(bare, bare.runs["y"]))


def test_a_clock_that_jumps_back_makes_no_negative_time() -> None:
    events = [*before_the_kill(), *the_recovery()]
    store = reduced(events)
    run = store.runs[SMALL]
    run.ended_s = run.started_s - 500
    assert extent(run).duration_s == 0.0
    assert "Run demo" in html(report(store, run))


def test_an_hour_of_a_thousand_ranks_is_quick_and_small() -> None:
    few, store = reduced(large(ranks=100, reported=8)), reduced(large(reported=8))
    reported = html(report(store, store.runs[RUN]))
    assert len(reported.encode()) < 1_000_000
    cost = growth(
        lambda: html(report(few, few.runs[RUN])), lambda: html(report(store, store.runs[RUN]))
    )
    assert cost < 20


def earlier(rates: list[float], job: str, world_size: int = 8) -> list[RunSummary]:
    base = RunSummary("", "llama", job, RunState.FINISHED, world_size)
    return [replace(base, run_id=f"r{n}", samples_per_s=rate) for n, rate in enumerate(rates)]


def words_beside(store: Store, past: list[RunSummary]) -> str:
    reported = report(store, store.runs[RUN], past=past)
    section = next((s for s in reported.sections if s.name == "compared"), None)
    return " ".join(b.text for b in section.blocks if isinstance(b, Text)) if section else ""


def test_a_run_is_reported_beside_recorded_ones_of_its_job(store: Store) -> None:
    job = job_of(store, store.runs[RUN])
    same = words_beside(store, earlier([2_500.0, 2_600.0, 2_560.0], job=job))
    assert "median of the 3 of them" in same
    assert "within what is normal" in same
    slow = words_beside(store, earlier([4_000.0] * 3, job=job))
    assert "36 % below" in slow
    assert "more than chance explains" in slow
    assert "there is no baseline" in words_beside(store, earlier([9.0], job=job, world_size=2))
    assert words_beside(store, earlier([9.0], job="another")) == ""
    assert words_beside(store, earlier([9.0], job=job)[:0]) == ""


def test_more_ranks_are_measured_by_what_a_rank_does(store: Store) -> None:
    past = earlier([640.0], job=job_of(store, store.runs[RUN]), world_size=1)
    rows = table(report(store, store.runs[RUN], past=past), "scaling")
    assert [row["world_size"] for row in rows] == [1, 8]
    assert rows[1]["efficiency_percent"] == pytest.approx(50.0, rel=0.01)


def test_lost_time_is_reported_in_gpu_hours(document: Document) -> None:
    rows = table(document, "goodput")
    lost = [row for row in rows if row["lost_gpu_hours"] is not None]
    assert len(lost) == len(rows) - 1
    for row in lost:
        hours = float(str(row["duration_s"])) * 8 / 3600
        assert row["lost_gpu_hours"] == pytest.approx(hours)


def test_a_script_that_only_reports_has_its_loss_and_its_charts() -> None:
    events = [
        MetricsReported(
            at_s=91.0 + n,
            source="telemetry",
            run_id=SMALL,
            attempt=1,
            metrics={"loss": 2.0 / (n + 1), "epoch": float(n)},
        )
        for n in range(20)
    ]
    reported = [e for e in before_the_kill() if not isinstance(e, RankSampled)]
    store = reduced([*reported, *events])
    document = report(store, store.runs[SMALL])
    assert key_numbers(document)["loss"] == 0.1
    assert "loss 2 → 0.1" in document.verdict
    names = [b.name for s in document.sections for b in s.blocks if isinstance(b, Chart)]
    assert names == ["reported.loss", "reported.epoch"]


def test_a_run_to_which_everything_happened_hundreds_of_times_stays_a_page() -> None:
    store = rich()
    run = store.runs[RUN]
    for number in range(4, 500):
        attempt = run.attempt_view(number)
        attempt.started_s = START_S + 600 + number * 100
        attempt.ended_s, attempt.reason = attempt.started_s + 90, "the node died " * 20
        attempt.first_step, attempt.last_step = number * 50, number * 50 + 70
        run.enter_phase(attempt.started_s, number, Phase.RUNNING)
        for name in run.curves:
            run.curves.append(name, attempt.started_s + 30, float(number % 7))
            run.curves.append(name, attempt.started_s + 60, float(number % 5))
        path = "/checkpoints/" + "x" * 400
        run.checkpoints.append((attempt.started_s + 80, Checkpoint(number, path)))
        past = store.alerts_past[0]
        alert = replace(past.alert, raised_s=attempt.started_s)
        store.alerts_past.append(replace(past, alert=alert))
        store.drills.append(replace(store.drills[0], injected_s=attempt.started_s + 85))
    run.ended_s = START_S + 51_000
    document = report(store, run)
    assert len(html(document).encode()) < 1_000_000
    assert len(table(document, "attempts")) == 60
    assert len(table(document, "alerts")) == 60
    assert sum(1 for mark in document.marks if mark.kind is MarkKind.ATTEMPT) == 498


def test_history_from_before_it_was_watched_belongs_to_the_run_and_a_wrong_clock_does_not() -> None:
    store = reduced([*before_the_kill(), *the_recovery()])
    run = store.runs[SMALL]
    run.started_s += 1e9
    run.curves.open("loss").prepend([(30.0, 3.0), (31.0, 2.9)])
    assert extent(run).begin_s > 1e8, "seconds after 1970"
    run.started_s -= 1e9
    assert extent(run).begin_s == 30.0


def test_points_outside_of_the_run_are_not_drawn(store: Store) -> None:
    document = report(store, store.runs[RUN])
    chart = next(b for s in document.sections for b in s.blocks if isinstance(b, Chart))
    line = replace(chart.lines[0], times=[1.0, 2.0, 3.0], values=[7.0, 8.0, 9.0])
    drawn = chart_svg(replace(chart, lines=(line,), band=None))
    assert 'class="c c0"' not in drawn


def test_a_script_without_telemetry_lasts_as_long_as_it_reports() -> None:
    started = [
        RunSeen(at_s=at_s, source="telemetry", run_id="a", name="plain", state=state)
        for at_s, state in ((100.0, RunState.SCHEDULING), (112.0, RunState.RUNNING))
    ]
    reports = [
        MetricsReported(
            at_s=113.0 + n,
            source="telemetry",
            run_id="a",
            attempt=1,
            metrics={"loss": 1 / (n + 1), "step": float(n)},
        )
        for n in range(48)
    ]
    store = reduced([*started, *reports])
    run = store.runs["a"]
    assert extent(run).duration_s == 60.0
    reported = report(store, run)
    assert reported.verdict.startswith("Still running after 1 m 00 s; 47 steps, loss 1 → 0.02083")
    numbers = key_numbers(reported)
    assert numbers["goodput_percent"] == pytest.approx(80.0)
    assert numbers["steps"] == 47
    summed = summary(store, run)
    assert summed.steps == 47
    assert summed.goodput_percent == pytest.approx(80.0)
