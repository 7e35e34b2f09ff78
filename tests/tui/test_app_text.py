"""The parts of the screens that need no screen: commands, objects, order, sentences."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from textual.content import Content

from cockpit.cli.output.run_rows import run_events
from cockpit.drills.plan.kill import plan_kill
from cockpit.model.drill import Drill
from cockpit.model.error import UsageError
from cockpit.store.selectors import current_run
from cockpit.tui.changes.object_yaml import yaml
from cockpit.tui.commands import commands
from cockpit.tui.dialogs.help import help_text
from cockpit.tui.main.frame import _spread
from cockpit.tui.rows.sort import Order
from cockpit.tui.terminal.cells import width_of
from cockpit.tui.views.pods.event_rows import event_rows
from cockpit.tui.views.pods.rows import PodRows
from cockpit.tui.views.ranks.rows import RankRows
from cockpit.tui.widgets.table.table import Cell, Column, Row
from tests.tui.simulated import START_S, Simulation, digits, wide


def at(simulation: Simulation, at_s: float) -> Simulation:
    simulation.advance(at_s)
    simulation.session.drain()
    return simulation


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (20, "left text   X aborts"),
        (18, "left text X aborts"),
        (17, "left te… X aborts"),
        (9, "X aborts"),
    ],
)
def test_ends_of_a_line_never_touch(width: int, shown: str) -> None:
    line = _spread(Content("left text"), Content("X aborts"), width).plain
    assert line.strip() == shown.strip()


def test_a_command_may_be_shortened_as_long_as_it_is_one() -> None:
    assert commands.parse("ki demo-workers-1 5s")[0].name == "kill"
    assert commands.parse("q")[0].name == "quit"
    with pytest.raises(UsageError, match="is ambiguous"):
        commands.parse("l")
    with pytest.raises(UsageError, match="no command"):
        commands.parse("frob")


def test_completion_knows_pods_groups_and_jobs() -> None:
    store = at(digits(), 60).session.store
    assert commands.completions("ki", store) == ["kill"]
    assert commands.completions("kill demo-h", store) == ["kill demo-head"]
    assert commands.completions("scale ", store) == ["scale workers"]
    assert commands.completions("stop raysubmit_d", store) == ["stop raysubmit_digits01"]


def test_yaml_quotes_what_would_read_as_something_else() -> None:
    text = yaml(
        {"ip": "10.0.0.1", "up": True, "said": "yes", "of": [1, {"a": "b: c"}], "end": None}
    )
    assert text.splitlines() == [
        'ip: "10.0.0.1"',
        "up: true",
        'said: "yes"',
        "of:",
        "  - 1",
        '  - a: "b: c"',
        "end: null",
    ]
    assert "\x1b" not in yaml({"log": "\x1b[31mred"})


def test_order_sorts_numbers_by_size_in_any_unit() -> None:
    columns = (Column("took", "TOOK"),)
    texts = ("1 m 05 s", "900 ms", "–", "18.5 s", "1.2 GiB", "900 MiB")
    rows = [Row(text, (Cell(text),)) for text in texts]
    sizes = Order(by="took").apply(rows[:4], columns)
    assert [row.key for row in sizes] == ["900 ms", "18.5 s", "1 m 05 s", "–"]
    assert [row.key for row in Order(by="took").apply(rows[4:], columns)] == ["900 MiB", "1.2 GiB"]


def test_gpu_columns_are_there_only_when_a_rank_has_one() -> None:
    for simulation, has_gpus in ((at(digits(), 60), False), (at(wide(16, until_s=20), 20), True)):
        store, table = simulation.session.store, RankRows()
        shown = table.rows(store, current_run(store), simulation.now_s, Order())
        assert ("gpu" in [column.key for column in table.columns]) is has_gpus
        assert {len(row.cells) for row in shown.rows} == {len(table.columns)}


def test_pods_list_their_ranks() -> None:
    simulation = at(wide(16, until_s=20), 20)
    table = PodRows()
    rows = table.rows(simulation.session.store, simulation.now_s, Order())
    ranks = [column.key for column in table.columns].index("ranks")
    assert [row.cells[ranks][0] for row in rows] == ["–", "0–7", "8–15"]


def test_events_come_newest_first_with_unique_keys() -> None:
    rows = event_rows(at(digits(), 110).session.store)
    times = [row.cells[0][0] for row in rows]
    assert times == sorted(times, reverse=True)
    assert len({row.key for row in rows}) == len(rows)


def test_attempts_have_the_same_text_in_the_ui_and_in_cockpit_events() -> None:
    store = at(digits(), 110).session.store
    run = current_run(store)
    assert run is not None
    assert len(run.attempts) > 1
    shown = [
        f"{row.cells[2][0].lower()} {row.cells[3][0]}"
        for row in event_rows(store)
        if row.cells[2][0].startswith("Attempt ")
    ]
    assert sorted(shown) == sorted(row["message"] for row in run_events(run))
    assert any(
        line.startswith("attempt 2 started with 2 ranks, resumed at step ") for line in shown
    )
    assert any(line.startswith("attempt 1 ended: ") for line in shown)


def test_a_drill_reports_a_grace_only_where_there_is_one() -> None:
    store = at(digits(), 60).session.store
    slow = Drill("drill-1.1", "slow-rank", "demo-workers-2", (1,), START_S + 60, 0.0)
    store.drills += [slow, replace(slow, id="drill-2.1", fault="pod-delete", grace_s=30.0)]
    reported = [row.cells[3][0] for row in event_rows(store) if row.cells[2][0] == "Drill"]
    assert sorted(reported) == ["pod-delete, grace 30 s, hit rank 1", "slow-rank, hit rank 1"]


def test_help_of_a_long_command_is_indented_and_aligned() -> None:
    for width in (66, 40, 5):
        lines = help_text("drills", width).plain.splitlines()
        at_line = next(n for n, line in enumerate(lines) if line.startswith("  :drill ["))
        assert ":drill [FAULT [TARGET] …] inject" in lines[at_line]
        assert lines[at_line].index("inject") == 28
        if width > 5:
            assert max(map(width_of, lines)) <= width
    wrapped = help_text("drills", 40).plain.splitlines()
    at_line = next(n for n, line in enumerate(wrapped) if line.startswith("  :drill ["))
    assert wrapped[at_line + 1].startswith(" " * 28)
    assert wrapped[at_line + 1][28] != " "


def test_the_simulated_kill_hits_rank_one() -> None:
    plan = plan_kill(at(digits(), 60).session.store, "rank:1", 0)
    assert plan.pod.name == "demo-workers-2"
    assert "rank 1 of 2" in plan.lines[1]


def test_machines_is_an_alias_of_the_view_of_nodes() -> None:
    assert commands.parse("machines") == commands.parse("nodes")
    assert commands.parse("nodes")[0].name == "nodes"
