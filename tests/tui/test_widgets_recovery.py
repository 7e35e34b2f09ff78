from __future__ import annotations

import pytest

from cockpit.model.drill import Drill, Recovery
from cockpit.tui.cells import width_of
from cockpit.tui.symbols import Symbols
from cockpit.tui.widgets.phases import bar, legend, phases, summary
from cockpit.tui.widgets.recovery import RecoveryBar
from tests.tui.stage import Stage, lines, watch_repaints

T0 = 1_700_000_000.0
DRILL = Drill("1", "pod-kill", "demo-worker-x", (1,), T0, 0.0)
DONE = Recovery(
    DRILL,
    detected_s=6.6,
    attempt_ended_s=7.0,
    restarted_s=14.2,
    first_step_s=18.5,
    resumed_step=30,
    last_step=41,
)


def test_the_summary_tells_the_whole_story() -> None:
    assert summary(DONE, T0 + 90) == (
        "pod-kill demo-worker-x: detected 6.6 s, restarted 14.2 s, first step 18.5 s, 12 steps lost"
    )


def test_the_summary_of_an_unfinished_recovery_tells_how_long_it_has_taken() -> None:
    going = Recovery(DRILL, detected_s=6.6, last_step=5, resumed_step=5)
    said = summary(going, T0 + 11)
    assert said == "pod-kill demo-worker-x: detected 6.6 s, 1 step lost, not recovered after 11.0 s"


def test_phases_follow_one_another() -> None:
    found = phases(DONE, T0 + 90)
    assert [phase.name for phase in found] == ["detect", "end attempt", "restart", "first step"]
    assert [phase.end_s for phase in found] == [6.6, 7.0, 14.2, 18.5]
    assert all(phase.done for phase in found)


def test_the_last_phase_goes_on_until_its_end_is_seen() -> None:
    found = phases(Recovery(DRILL, detected_s=6.6), T0 + 11)
    assert [(p.name, p.done) for p in found] == [("detect", True), ("end attempt", False)]
    assert found[-1].end_s == pytest.approx(11.0)


def test_an_instant_that_was_never_seen_takes_no_time() -> None:
    found = phases(Recovery(DRILL, restarted_s=14.0, first_step_s=18.0), T0 + 90)
    assert [(p.name, p.start_s, p.end_s) for p in found] == [
        ("restart", 0.0, 14.0),
        ("first step", 14.0, 18.0),
    ]


@pytest.mark.parametrize("symbols", list(Symbols))
@pytest.mark.parametrize("width", [0, 1, 7, 80, 200])
@pytest.mark.parametrize("now_s", [0.0, 3.0, 11.0, 500.0])
def test_a_bar_is_exactly_as_wide_as_asked(symbols: Symbols, width: int, now_s: float) -> None:
    for recovery in (DONE, Recovery(DRILL), Recovery(DRILL, detected_s=2.0)):
        found = phases(recovery, T0 + now_s)
        assert sum(width_of(text) for text, _ in bar(found, width, symbols)) == width
        assert sum(width_of(text.rstrip()) for text, _ in legend(found, width, symbols)) <= width


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
        assert "restart 7.2 s" in lines(widget)[1]
        assert "12 step" in lines(widget)[2] or lines(widget)[2].endswith("…")
        await pilot.pause()
        seen = watch_repaints(widget)
        widget.set_recovery(DONE, T0 + 30)
        assert seen == []
        await pilot.resize_terminal(160, 12)
        await pilot.pause()
        assert lines(widget)[2].endswith("12 steps lost")
