from __future__ import annotations

import pytest
from msgspec.structs import replace

from cockpit.model.drill import Drill, Instant, Milestone, Recovery
from cockpit.tui.terminal.cells import width_of
from cockpit.tui.terminal.symbols import Symbols
from cockpit.tui.widgets.bars.phases import bar, is_open, legend, named, phases, summary, waits_for
from cockpit.tui.widgets.bars.recovery import RecoveryBar
from cockpit.tui.widgets.few_lines import cut
from tests.tui.stage import Stage, lines, watch_repaints

T0 = 1_700_000_000.0
DRILL = Drill("1", "pod-kill", "demo-worker-x", (1,), T0, 0.0, "run-1", 1)
DONE = Recovery(
    DRILL,
    detected_s=6.6,
    attempt_ended_s=7.0,
    restarted_s=14.2,
    first_step_s=18.5,
    resumed_step=30,
    last_step=41,
)


def test_the_summary_reports_all_stages() -> None:
    assert summary(DONE, T0 + 90) == (
        "pod-kill of demo-worker-x: detected 6.6 s, restarted 14.2 s, first new step 18.5 s, "
        "12 steps lost"
    )


def test_the_summary_of_an_unfinished_recovery_reports_how_long_it_has_taken() -> None:
    going = Recovery(DRILL, detected_s=6.6, last_step=5, resumed_step=5)
    text = summary(going, T0 + 11)
    assert text == (
        "pod-kill of demo-worker-x: detected 6.6 s, 1 step lost, not recovered after 11.0 s"
    )


def test_phases_follow_one_another() -> None:
    found = phases(DONE, T0 + 90)
    names = [phase.name for phase in found]
    assert names == ["detect", "end attempt", "start workers", "first step"]
    assert [phase.end_s for phase in found] == [6.6, 7.0, 14.2, 18.5]
    assert all(phase.done for phase in found)


def test_the_last_phase_continues_until_its_end_is_seen() -> None:
    found = phases(Recovery(DRILL, detected_s=6.6), T0 + 11)
    assert [(p.name, p.done) for p in found] == [("detect", True), ("end attempt", False)]
    assert found[-1].end_s == pytest.approx(11.0)


def test_an_instant_that_was_never_seen_takes_no_time() -> None:
    found = phases(Recovery(DRILL, restarted_s=14.0, first_step_s=18.0), T0 + 90)
    assert [(p.name, p.start_s, p.end_s) for p in found] == [
        ("start workers", 0.0, 14.0),
        ("first step", 14.0, 18.0),
    ]


@pytest.mark.parametrize("symbols", list(Symbols))
@pytest.mark.parametrize("width", [0, 1, 7, 80, 200])
@pytest.mark.parametrize("now_s", [0.0, 3.0, 11.0, 500.0])
def test_a_bar_is_exactly_as_wide_as_asked(symbols: Symbols, width: int, now_s: float) -> None:
    for recovery in (DONE, Recovery(DRILL), Recovery(DRILL, detected_s=2.0)):
        found = phases(recovery, T0 + now_s)
        assert sum(width_of(text) for text, _ in bar(found, width, symbols)) == width
        for line in legend(found, width, symbols, 3):
            assert width_of("".join(text for text, _ in line).rstrip()) <= width


def test_a_given_scale_makes_bars_comparable() -> None:
    parts = bar(phases(DONE, T0), 100, Symbols.ASCII, scale_s=37.0)
    assert parts[-1] == ("." * 50, "muted")


async def test_a_recovery_is_live_and_then_settles() -> None:
    widget = RecoveryBar(classes="tall")
    async with Stage(widget).run_test(size=(80, 12)) as pilot:
        widget.styles.height = 3
        await pilot.pause()
        assert lines(widget)[0] == "No drill yet"
        widget.set_recovery(Recovery(DRILL), T0 + 3)
        assert "detect 3.0 s …" in lines(widget)[1]
        widget.set_recovery(DONE, T0 + 20)
        assert "start workers 7.2 s" in lines(widget)[1]
        assert "12 step" in lines(widget)[2] or lines(widget)[2].endswith("…")
        await pilot.pause()
        seen = watch_repaints(widget)
        widget.set_recovery(DONE, T0 + 30)
        assert seen == []
        await pilot.resize_terminal(160, 12)
        await pilot.pause()
        assert lines(widget)[2].endswith("12 steps lost")


def seen(*reached: tuple[Milestone, float], drill: Drill = DRILL, **more: float | bool) -> Recovery:
    instants = tuple(Instant(milestone, after_s, "ray") for milestone, after_s in reached)
    return Recovery(drill, instants=instants, **more)  # type: ignore[arg-type]


def test_every_milestone_that_was_seen_ends_a_phase_in_the_order_of_time() -> None:
    reached = [(milestone, float(at)) for at, milestone in enumerate(Milestone)]
    found = phases(seen(*reversed(reached), first_step_s=10.0), T0 + 90)
    assert [phase.end_s for phase in found] == [float(n) for n in range(1, len(Milestone))]
    assert [phase.name for phase in found][-3:] == ["first step", "catch up", "full speed"]
    assert len({phase.name for phase in found}) == len(found)


def test_a_pod_that_was_not_awaited_is_no_phase() -> None:
    ready = (Milestone.POD_READY, 30.0)
    spare = seen((Milestone.DETECTED, 2.0), (Milestone.WORKERS_STARTED, 8.0), ready)
    assert [phase.name for phase in phases(spare, T0, going=False)] == ["detect", "start workers"]
    waited = seen(
        (Milestone.DETECTED, 2.0), (Milestone.POD_READY, 7.0), (Milestone.WORKERS_STARTED, 8.0)
    )
    assert "pod ready" in [phase.name for phase in phases(waited, T0, going=False)]


def test_an_instant_before_the_fault_takes_no_time() -> None:
    found = phases(seen((Milestone.STOPPED, -0.2), (Milestone.DETECTED, 1.9)), T0, going=False)
    assert [(phase.name, phase.start_s, phase.end_s) for phase in found] == [
        ("stop", 0.0, 0.0),
        ("detect", 0.0, 1.9),
    ]


def test_awaited_milestones_depend_on_the_target() -> None:
    assert waits_for(Recovery(DRILL)) is Milestone.DETECTED
    assert waits_for(seen((Milestone.FIRST_STEP, 9.0))) is Milestone.CAUGHT_UP
    assert waits_for(seen((Milestone.THROUGHPUT_BACK, 9.0))) is None
    slow = seen((Milestone.SYMPTOM, 1.0), interrupted=False)
    assert waits_for(slow) is Milestone.THROUGHPUT_BACK
    no_run = Drill("1", "pod-kill", "demo-worker-x", (), T0, 0.0)
    assert waits_for(Recovery(no_run)) is Milestone.POD_REPLACED
    assert waits_for(seen((Milestone.POD_REPLACED, 1.0), drill=no_run)) is Milestone.POD_READY


def test_whether_there_will_be_a_restart_is_open_until_something_of_it_is_seen() -> None:
    slow = replace(DRILL, fault="slow-rank")
    symptom = (Milestone.SYMPTOM, 1.0)
    assert is_open(seen(symptom, drill=slow))
    assert [one.name for one in phases(seen(symptom, drill=slow), T0 + 9)] == ["symptom", "outcome"]
    assert not is_open(seen(symptom, (Milestone.DETECTED, 2.0), drill=slow))
    assert not is_open(seen(symptom, drill=slow, interrupted=False))
    assert not is_open(seen(symptom)), "Ray sees the node of a killed pod die"


def test_a_legend_without_room_leaves_out_first_what_the_bar_reports_itself() -> None:
    reached = [(milestone, 2.0 + at) for at, milestone in enumerate(Milestone)]
    found = phases(seen(*reached, (Milestone.DETECTED, 40.0), first_step_s=12.0), T0, going=False)
    reported = named(found, 60, Symbols.BLOCK)
    assert [phase.name for phase in reported] == ["detect"]
    lines = legend(found, 60, Symbols.BLOCK, 4, reported)
    message = "".join(text for line in lines for text, _ in line)
    assert "detect 26.0 s" not in message
    assert "catch up 1.0 s" in message


def test_a_line_is_cut_where_its_last_cell_is() -> None:
    line = [("ab", "bold"), ("cdef", "")]
    assert cut(line, 6) == line
    assert cut(line, 5) == [("ab", "bold"), ("cd…", "")]
    assert cut(line, 2) == [("a…", "bold")]
    assert cut([("ab", ""), ("日本", "")], 5) == [("ab", ""), ("日…", "")]
    assert cut([*line, ("  ", "")], 6) == [*line, ("  ", "")]
    assert cut(line, 0) == [("", "bold")]


def test_a_legend_takes_as_many_lines_as_it_may() -> None:
    found = phases(DONE, T0 + 90)
    lines = ["".join(text for text, _ in line) for line in legend(found, 40, Symbols.ASCII, 3)]
    assert lines == [
        "* detect 6.6 s  * end attempt 400 ms  ",
        "* start workers 7.2 s  ",
        "* first step 4.3 s  ",
    ]
    assert len(legend(found, 40, Symbols.ASCII)) == 1


@pytest.mark.parametrize("width", [-2, 0, 3])
def test_a_legend_before_there_is_a_width_is_empty(width: int) -> None:
    assert legend(phases(DONE, T0 + 90), width, Symbols.BLOCK, 3) == [[]]


def test_a_legend_without_room_names_what_took_longest_and_what_continues() -> None:
    going = Recovery(DRILL, detected_s=1.0, attempt_ended_s=1.2, restarted_s=14.2)
    (line,) = legend(phases(going, T0 + 14.3), 50, Symbols.ASCII)
    message = "".join(text for text, _ in line).rstrip()
    assert message == "* start workers 13.0 s  * first step 100 ms …"


def test_without_colours_an_edge_shows_where_a_phase_ends() -> None:
    text = "".join(part for part, _ in bar(phases(DONE, T0), 74, Symbols.ASCII))
    assert text.count("|") == 3
    assert "|" not in "".join(part for part, _ in bar(phases(DONE, T0), 74, Symbols.BLOCK))
