from __future__ import annotations

import json
import math

import pytest
from msgspec.structs import replace

from cockpit.cli.drill.progress import as_row
from cockpit.cli.main import main
from cockpit.cli.options import connect
from cockpit.cli.output.lists import rows_of
from cockpit.cli.output.status import print_status, status
from cockpit.cli.output.tables import Row, as_json, print_rows
from cockpit.cli.read.watch import Watched
from cockpit.insight.recovery.measurement import recovery
from cockpit.insight.recovery.text import sentence
from cockpit.model.cluster import PodPhase
from cockpit.model.event import Event, MetricsReported, Notice, SourceHealth
from cockpit.model.run import Checkpoint, RankMetrics, RunState
from cockpit.session.session import Session
from tests.events import (
    DRILL,
    HEAD,
    ONE,
    RUN,
    TWO,
    before_the_kill,
    pods,
    reduced,
    run_seen,
    started,
    the_recovery,
    tick,
)
from tests.simulated_backend import ScriptedBackend


def test_json_holds_the_vocabulary_and_survives_nan() -> None:
    assert as_json({"loss": math.nan, "x": (1, math.inf)}) == {"loss": "nan", "x": [1, "inf"]}
    assert as_json(ONE)["phase"] == "Running"
    assert as_json(1.23456789e-9) == 1.23457e-9
    assert as_json(1763712000.123456789) == 1763712000.123457


def test_a_table_aligns_numbers_to_the_right_and_marks_what_is_unknown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows: list[Row] = [
        {"name": "a", "n": 5, "ok": True},
        {"name": "longer", "n": None, "ok": False},
    ]
    print_rows(rows, ("name", "n", "ok"), "table")
    assert capsys.readouterr().out.splitlines() == [
        "NAME    N  OK",
        "a       5  yes",
        "longer  –  no",
    ]


class Watch:
    """A cluster that reports `first`, and then each of `then` to --watch, which Ctrl-C ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, first: Event, *then: Event) -> None:
        healthy = SourceHealth(at_s=1.0, source="backend", ok=True)
        telemetry = replace(healthy, source="telemetry")
        cluster = ScriptedBackend((first, healthy, telemetry))
        monkeypatch.setattr(connect, "backend", lambda *_, **__: cluster)
        left = list(then)

        def wait_for_change(session: Session) -> None:
            if not left:
                raise KeyboardInterrupt
            session.dispatch(left.pop(0))
            session.drain()

        monkeypatch.setattr(Session, "wait_for_change", wait_for_change)


def test_watching_prints_the_rows_that_changed_under_one_title(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pending = replace(TWO, phase=PodPhase.PENDING, ready=False)
    same = replace(TWO, uid="u")  # a column that only -o wide shows
    listed = ((ONE, pending), (ONE, TWO), (ONE, same), (same,))
    Watch(monkeypatch, *(pods(float(at_s), *rows) for at_s, rows in enumerate(listed)))
    assert main(["pods", "-w", "-o", "table"]) == 130
    title, *rows = capsys.readouterr().out.splitlines()
    assert title.split()[:4] == ["EVENT", "NAME", "GROUP", "PHASE"]
    assert [row.split()[:4] for row in rows] == [
        ["ADDED", ONE.name, ONE.group, "Running"],
        ["ADDED", TWO.name, TWO.group, "Pending"],
        ["MODIFIED", TWO.name, TWO.group, "Running"],
        ["DELETED", ONE.name, ONE.group, "Running"],
    ]
    assert {row.index(f" {ONE.group} ") + 1 for row in rows} == {title.index("GROUP")}


@pytest.mark.parametrize(
    ("terminal", "options", "table"),
    [(True, (), True), (True, ("-o", "jsonl"), False), (False, (), False),
     (False, ("-o", "wide"), True)],
)  # fmt: skip
def test_watching_prints_a_table_in_a_terminal_and_json_in_a_pipe(
    terminal: bool,
    options: tuple[str, ...],
    table: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Watch(monkeypatch, pods(1.0, ONE))
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    assert main(["pods", "--watch", *options]) == 130
    assert capsys.readouterr().out.startswith("EVENT" if table else '{"at_s"')


def test_watched_events_are_only_added(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def notice(message: str, at_s: float) -> Notice:
        return Notice(
            at_s=at_s, source="backend", kind="Pod", name="a", reason="R", message=message
        )

    Watch(monkeypatch, notice("pulled", 1.0), notice("started", 2.0))
    assert main(["events", "-w", "-o", "table"]) == 130
    title, *rows = capsys.readouterr().out.splitlines()
    assert title.startswith("AT")
    assert [row.split()[-1] for row in rows] == ["pulled", "started"]


def test_an_empty_list_reports_it_and_is_still_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([], ("name",), "table", empty="No pods.")
    print_rows([], ("name",), "json")
    print_rows([], ("name",), "jsonl")
    assert capsys.readouterr().out == "No pods.\n[]\n"


def test_status_is_one_object_with_everything() -> None:
    whole = status(reduced(before_the_kill()), 0.0)
    assert json.loads(json.dumps(as_json(whole), allow_nan=False))
    assert whole["cluster"]["health"] == "ready"
    assert whole["run"]["attempt"] == 1
    assert [rank["pod"] for rank in whole["ranks"]] == ["t-workers-1", "t-workers-2"]
    assert whole["pods"][2]["ranks"] == [1]


def test_a_script_without_telemetry_is_reported_by_what_it_reports(
    capsys: pytest.CaptureFixture[str],
) -> None:
    checkpoint = Checkpoint(None, "/results/checkpoint_7", {}, 70_921, 0.489)
    report = MetricsReported(
        at_s=40.0,
        source="telemetry",
        run_id=RUN,
        attempt=1,
        metrics={"train_loss": 0.25, "epoch": 7.0},
        checkpoint=checkpoint,
        ranks=tuple(RankMetrics(rank, {"train_loss": 0.2 + rank / 10}) for rank in range(2)),
    )
    store = reduced(
        [run_seen(9.0, RunState.RUNNING), pods(10.0, HEAD, ONE, TWO), started(11.0, 1, ONE, TWO)]
    )
    store.apply(report)
    run = status(store, 0.0)["run"]
    assert (run["loss"], run["step"], run["metrics"]["epoch"]) == (0.25, None, 7.0)
    assert [rank["reported"] for rank in rows_of("ranks", store, 0.0)] == [
        {"train_loss": 0.2},
        {"train_loss": pytest.approx(0.3)},
    ]
    print_status(store, "table", 52.0)
    text = capsys.readouterr().out
    assert "Run demo: RUNNING, attempt 1\n" in text, "a step that nobody told is not 0"
    assert "Reported: train_loss 0.25, epoch 7\n" in text
    assert "Checkpoint: 12 s ago, 69.3 KiB, saved in 489 ms, /results/checkpoint_7\n" in text
    assert text.endswith(
        "RANK  POD          TRAIN_LOSS\n"
        "   0  t-workers-1         0.2\n"
        "   1  t-workers-2         0.3\n"
    )


def test_watching_reports_why_there_is_no_sample(capsys: pytest.CaptureFixture[str]) -> None:
    health = SourceHealth(at_s=1.0, source="telemetry", ok=True)
    report = MetricsReported(at_s=2.0, source="telemetry", run_id=RUN, attempt=1)
    watched = Watched("dmeo")
    for event in (health, run_seen(1.0, RunState.RUNNING), health, health, report):
        watched.on_event(event)
    assert capsys.readouterr().err.splitlines() == [
        "Waiting for run 'dmeo'. Available: none.",
        "Waiting for run 'dmeo'. Available: demo.",
    ]
    watched = Watched("demo")
    events: list[Event] = [health, run_seen(1.0, RunState.RUNNING), report, report]
    for seen in [*events, tick(1, 3.0, 1, 5)]:
        watched.on_event(seen)
    reported = capsys.readouterr()
    assert reported.err.count("telemetry.step") == 1
    assert [json.loads(line)["run"] for line in reported.out.splitlines()] == ["demo", "demo"]


@pytest.mark.parametrize("verb", ["groups", "pods", "nodes", "jobs", "runs", "ranks"])
def test_listed_rows_have_a_name(verb: str) -> None:
    assert all("name" in row for row in rows_of(verb, reduced(before_the_kill()), 0.0))


def test_a_recovery_is_reported_in_one_line() -> None:
    measured = recovery(reduced([*before_the_kill(), *the_recovery()]), DRILL)
    assert sentence(measured) == (
        "recovered from pod-kill of t-workers-2: detected 6.6 s, restarted 14.0 s, "
        "first new step 18.5 s, 12 steps lost"
    )
    row = as_row(measured)
    assert (row["steps_lost"], row["recovered"], row["target"]) == (12, True, "t-workers-2")


def test_a_run_that_did_not_come_back_reports_why() -> None:
    measured = recovery(reduced([*before_the_kill(), *the_recovery()[:4]]), DRILL)
    assert sentence(measured) == ("pod-kill of t-workers-2: NOT recovered: node 127.0.1.3 died")


def test_without_a_run_the_pod_alone_is_timed() -> None:
    alone = replace(DRILL, run_id="", ranks=())
    measured = recovery(reduced([*before_the_kill(), *the_recovery()]), alone)
    assert "replaced after 8.0 s" in sentence(measured)
    measured = recovery(reduced(before_the_kill()), alone)
    assert "not replaced" in sentence(measured)
