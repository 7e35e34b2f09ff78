from __future__ import annotations

from cockpit.model.error import CockpitError
from cockpit.recorder.drills import DrillHistory
from cockpit.tui.app import CockpitApp
from cockpit.tui.dialogs.confirm import Confirm
from tests.tui.conftest import Open, Seen
from tests.tui.simulated import digits


def killed(app: CockpitApp) -> list[str]:
    return [drill.target for drill in app.store.drills]


async def aborted(seen: Seen) -> None:
    """End the drill, so that the app does not wait for it when it closes."""
    await seen.press("X", "y")
    await seen.until(lambda: seen.app.conducting is None)


async def test_kill_names_the_pod_and_what_it_hits_before_it_asks(cockpit: Open) -> None:
    async with cockpit(simulation=digits(kill_s=None)) as seen:
        await seen.press("2", "j", "K")
        await seen.sees("Kill this pod?", "demo-workers-2", "rank 1 of 2", "SIGKILL now")
        assert not seen.asked


async def test_no_is_what_enter_answers(cockpit: Open) -> None:
    async with cockpit(simulation=digits(kill_s=None)) as seen:
        await seen.press("2", "K", "enter")
        await seen.until(lambda: not isinstance(seen.app.screen, Confirm))
        assert not seen.asked
        await seen.press("K", "n")
        assert not isinstance(seen.app.screen, Confirm)
        assert not seen.asked


async def test_yes_deletes_the_pod_once_and_follows_the_drill(cockpit: Open) -> None:
    async with cockpit(simulation=digits(kill_s=None)) as seen:
        await seen.press("2", "j", "K", "y")
        await seen.until(lambda: killed(seen.app) == ["demo-workers-2"])
        assert seen.asked == [("delete_pod", "demo-workers-2", "0")]
        await seen.press("1")
        await seen.sees("Recovery", "waiting for the pod to end for", "pod-kill of demo-workers-2")
        await seen.press("2", "K")
        await seen.until(lambda: "A drill is running: pod-kill of demo-workers-2" in seen.toasts)
        await aborted(seen)
        [kept] = DrillHistory().all()[0]
        assert [drill.target for drill in kept.record.drills] == ["demo-workers-2"]


async def test_killing_the_head_wants_its_name_typed(cockpit: Open) -> None:
    async with cockpit(simulation=digits(kill_s=None)) as seen:
        await seen.press("4", "K")
        await seen.sees("Kill the head?", "Type demo-head")
        await seen.press("y", "enter")
        assert isinstance(seen.app.screen, Confirm)
        assert not seen.asked
        await seen.press("backspace", *"demo-head", "enter")
        await seen.until(lambda: bool(seen.asked))
        assert seen.asked == [("delete_pod", "demo-head", "0")]
        await aborted(seen)


async def test_a_kill_that_fails_reports_what_why_and_what_to_do(cockpit: Open) -> None:
    async with cockpit(simulation=digits(kill_s=None)) as seen:
        seen.simulation.backend.fails = CockpitError("It failed.", "The API said no.", "Try again.")
        await seen.press("2", "K", "y")
        await seen.sees("It failed.", "The API said no.", "Try again.")


async def test_the_recovery_is_followed_and_its_line_stays(cockpit: Open) -> None:
    async with cockpit(at_s=90) as seen:
        await seen.sees("pod-kill of demo-workers-2", "waiting for the next attempt")
        line = "recovered in 18.5 s, 12 steps lost  · resumed at step"
        assert line not in seen.text
        await seen.advance(100)
        await seen.sees(line)
        text = "Recovered\nfrom pod-kill of demo-workers-2 in 18.5 s, 12 steps lost"
        assert text in seen.toasts
        await seen.advance(200)
        await seen.sees(line)
