"""The page of a hang: opened by its command and from its alert."""

from __future__ import annotations

import pytest
from textual.containers import VerticalScroll

from cockpit.insight.detectors import hang
from cockpit.insight.detectors.hysteresis import alert_id
from cockpit.model.alert import Alert, Finding, Severity
from cockpit.model.event import AlertRaised, RanksDumped
from cockpit.model.hang import Collective, Dump, ProcessGroup, Reached, Stack, Thread
from cockpit.model.run import RunState
from cockpit.store.run import AttemptView, RunView
from cockpit.store.selectors import current_run
from cockpit.store.store import Store
from cockpit.tui.dialogs.confirm import Confirm
from cockpit.tui.view_state import ViewState
from cockpit.tui.views.hang.page import HangPage
from cockpit.tui.views.overview import run_panel
from tests.tui.conftest import Open, Seen
from tests.tui.simulated import START_S


def hangs(seen: Seen) -> None:
    """Rank 1 of the run sleeps, and rank 0 waits for it."""
    run = current_run(seen.app.store)
    assert run is not None
    assert run.attempt is not None
    seen.app.store.apply(dumped(run.id, run.attempt.number))


def dumped(run_id: str, attempt: int) -> RanksDumped:
    dumps = tuple(
        Dump(
            rank,
            number=2,
            idle_s=21.0,
            usual_s=1.0,
            bound_s=20.0,
            slow_bound_s=120.0,
            cpu_percent=1.0,
            threads=(Thread("", rank, "S", is_training=True),),
            reached=(Reached(0, 3 - rank, 2),),
            collectives=(Collective(0, 3 - rank, "all_reduce", "float32 [8]", 21.0, rank == 1),),
        )
        for rank in (0, 1)
    )
    stacks = (
        Stack(("all_reduce (torch/distributed/distributed_c10d.py:1)", "loop (a.py:2)"), 1),
        Stack(("loop (a.py:1)",), 0, "time.sleep"),
    )
    return RanksDumped(
        at_s=START_S + 60,
        source="telemetry",
        run_id=run_id,
        attempt=attempt,
        dumps=dumps,
        stacks=stacks,
        groups=(ProcessGroup("0", "default_pg", (0, 1)),),
    )


def raised(seen: Seen) -> None:
    """The alert of that hang."""
    run = current_run(seen.app.store)
    assert run is not None
    [finding] = hang.find(run, START_S + 60)
    alert = Alert(alert_id(finding), finding, START_S + 60)
    seen.app.store.apply(AlertRaised(at_s=START_S + 60, source="insight", alert=alert))
    seen.app.tick()


async def test_command_shows_the_verdict_and_both_stacks(cockpit: Open) -> None:
    async with cockpit(size=(120, 40)) as seen:
        await seen.press(*":hang", "enter")
        await seen.sees("no rank hangs")
        await seen.press("escape")
        hangs(seen)
        await seen.press(*":hang", "enter")
        await seen.sees("Rank 1 never called all_reduce #3 of group default (float32 [8])")
        await seen.sees("Kind: user code. Confidence: high.", "→ loop (a.py:1)", "→ loop (a.py:2)")
        await seen.sees("RUNNING STALLED · attempt")


async def test_wide_page_has_both_stacks_side_by_side_and_what_changed_before(
    cockpit: Open,
) -> None:
    async with cockpit(size=(200, 50)) as seen:
        hangs(seen)
        await seen.press(*":hang", "enter")
        await seen.sees("Before the hang:", "attempt 1 started with 2 ranks")
        [row] = [line for line in seen.text.split("\n") if "(cause, user code):" in line]
        assert "Rank 0 (waiting):" in row


async def test_keys_of_the_page_kill_the_cause_and_show_all_logs(cockpit: Open) -> None:
    async with cockpit(size=(120, 40)) as seen:
        hangs(seen)
        await seen.press(*":hang", "enter")
        await seen.press("K")
        await seen.sees("rank 1")
        await seen.until(lambda: isinstance(seen.app.screen, Confirm))
        await seen.press("escape", "v")
        await seen.sees("All logs of run digits")


async def test_overview_has_the_verdict_and_how_to_open_the_page(cockpit: Open) -> None:
    async with cockpit(size=(80, 24)) as seen:
        hangs(seen)
        raised(seen)
        await seen.sees(
            "Rank 1 never called all_reduce #3", ":hang shows the stacks", "STALLED for"
        )


async def test_narrow_overview_has_the_place_of_the_cause_before_the_collective(
    cockpit: Open,
) -> None:
    async with cockpit(size=(80, 24)) as seen:
        hangs(seen)
        raised(seen)
        await seen.sees("No progress for", "Rank 1 is in `loop` (a.py:1), `time.sleep`")
        await seen.sees("Rank 1 never called all_reduce #3")


@pytest.mark.parametrize(
    ("most", "after"),
    [(2, ["2 more (8 shows all)"]), (4, ["▲ straggler", "▲ loss-plateau"])],
)
def test_alerts_that_the_hint_on_a_hang_displaces_are_counted(most: int, after: list[str]) -> None:
    store = Store()
    for number, kind in enumerate(("loss-plateau", "straggler", "hang")):
        severity = Severity.CRITICAL if kind == "hang" else Severity.WARNING
        alert = Alert(kind, Finding(kind, "rank 1", severity, kind), START_S + number)
        store.apply(AlertRaised(at_s=START_S, source="insight", alert=alert))
    shown = run_panel.alarms(ViewState(store, START_S), most)
    assert shown is not None
    hang, hint, *rest = [line.partition("  since")[0].strip() for line in shown.plain.split("\n")]
    assert (hang, hint) == ("▲ hang", ":hang shows the stacks of the ranks, v all logs")
    assert rest == after


@pytest.mark.parametrize("width", [30, 60, 80])
def test_line_of_the_run_ends_with_an_ellipsis_where_it_is_cut(width: int) -> None:
    run = RunView("r", "r", state=RunState.RUNNING)
    run.attempts[1] = AttemptView(1, started_s=START_S, reason="a reason of many words " * 9)
    shown = run_panel.live(ViewState(Store(), START_S), run, None, None, width)
    lines = shown.plain.split("\n")
    assert len(lines) == run_panel.LIVE_LINES
    assert all(len(line) <= width for line in lines)
    assert lines[-1].endswith("…")


async def test_enter_on_the_alert_opens_the_page(cockpit: Open) -> None:
    async with cockpit(size=(120, 40)) as seen:
        hangs(seen)
        raised(seen)
        await seen.press("8", "enter")
        await seen.until(lambda: isinstance(seen.app.screen, HangPage))


async def test_click_on_the_key_that_scrolls_scrolls_by_a_line(cockpit: Open) -> None:
    async with cockpit() as seen:
        hangs(seen)
        await seen.press(*":hang", "enter")
        await seen.pilot.resize_terminal(80, 12)
        await seen.sees("j k scroll")
        box = seen.app.screen.query_one(VerticalScroll)
        x = seen.text.splitlines()[-1].index("j k scroll")
        await seen.pilot.click("KeyBar", offset=(x, 0))
        await seen.until(lambda: box.scroll_offset.y == 1)
