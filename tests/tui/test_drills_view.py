"""View 6: the available faults, the active drill, and completed ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.widgets import Button

from cockpit.actions.drills import DrillActions
from cockpit.drills.engine.journal import Journal
from cockpit.drills.faults.catalog import NAMES
from cockpit.drills.gamedays.file import shipped
from cockpit.model.drill import Drill, DrillRecord, KeptDrill, Stage, Verdict
from cockpit.model.event import DrillInjected, DrillStaged
from cockpit.recorder.drills import DrillHistory
from cockpit.recorder.reading.player import Player
from cockpit.recorder.reading.recording import Recording
from cockpit.tui.app import CockpitApp
from cockpit.tui.dialogs.confirm import Confirm
from cockpit.tui.dialogs.drill import DrillDialog
from cockpit.tui.replay.app import ReplayApp
from cockpit.tui.replay.session import connection
from cockpit.tui.terminal.screenshot import text_of
from cockpit.tui.views.drills import view as drills
from cockpit.tui.views.drills.page import DrillScreen
from cockpit.tui.widgets.table.table import LineTable
from tests.recorder.test_recorder import record
from tests.tui.conftest import Open, Seen
from tests.tui.drilled import RECORD, _events, drilled, past
from tests.tui.simulated import RUN, START_S, digits
from tests.tui.simulated_kubernetes import kube


def verdicts(app: CockpitApp) -> list[Verdict]:
    return [view.record.verdict for view in app.store.drilling.values() if view.record]


def faults(app: CockpitApp) -> LineTable:
    return app.screen.query_one("#catalogue", LineTable)


# -- the catalogue


async def test_catalogue_has_every_fault_with_its_effect_and_needs(cockpit: Open) -> None:
    async with cockpit(size=(200, 50)) as seen:
        await seen.press("6")
        await seen.sees(
            "Faults and game days ·",
            "pod-kill",
            "delete the head pod with no grace period; its GCS and drivers end",
            "exec in the pod, NET_ADMIN in the pod, nft in the image",
            "the file is restored",
        )
        keys = [row.key for row in faults(seen.app).rows]
        assert keys == [*NAMES, *(f"day:{name}" for name in shipped())]
        await seen.press("slash", *"container")
        await seen.sees(f"of {len(keys)} with “container”")
        assert "container-kill" in [row.key for row in faults(seen.app).rows]


async def test_click_on_the_key_opens_the_form_of_the_fault(cockpit: Open) -> None:
    async with cockpit(simulation=digits(kill_s=None)) as seen:
        await seen.press("6", "y")
        await seen.until(lambda: "There is no object to show in this view." in seen.toasts)
        x = seen.text.splitlines()[-1].index("enter open")
        await seen.pilot.click("KeyBar", offset=(x, 0))
        await seen.until(lambda: isinstance(seen.app.screen, DrillDialog))


async def test_fault_that_cannot_be_injected_is_refused_with_the_reason(cockpit: Open) -> None:
    async with cockpit() as seen:
        await seen.press("6", "j", "j", "enter")
        await seen.until(
            lambda: "Fault container-kill is not available on this cluster." in seen.toasts
        )
        assert "pod-kill has the same effect" in seen.toasts
        assert not isinstance(seen.app.screen, DrillDialog)
        seen.app.clear_notifications()
        row = next(row for row in faults(seen.app).rows if row.key == "network-partition")
        assert row.cells[-1] == ("no", "warning")
        faults(seen.app).move_to("network-partition")
        await seen.sees(
            "Not available here: pods of a local cluster share the network of this machine"
        )
        await seen.press("colon", *"drill frob", "enter")
        await seen.until(lambda: "no fault and no game day 'frob'" in seen.toasts)
        await seen.press("X")
        await seen.until(lambda: "No drill is running here." in seen.toasts)


async def test_read_only_dims_the_catalogue_and_refuses_each_way_in(cockpit: Open) -> None:
    async with cockpit(read_only=True, size=(120, 40)) as seen:
        await seen.press("6")
        await seen.sees("The UI is read-only.")
        assert {row.style for row in faults(seen.app).rows} == {"muted"}
        for keys in (("enter",), ("D",), ("colon", *"drill pod-kill", "enter")):
            seen.app.clear_notifications()
            await seen.press(*keys)
            await seen.until(lambda: "Nothing was injected." in seen.toasts)
        assert not seen.asked


# -- asking for one


async def test_target_is_the_selected_rank_or_a_typed_head(cockpit: Open) -> None:
    async with cockpit(simulation=digits(kill_s=None)) as seen:
        await seen.press("2", "j", "D")
        await seen.until(lambda: isinstance(seen.app.screen, DrillDialog))
        await seen.press("ctrl+s")
        await seen.sees(
            "Inject pod-kill?", "Delete pod demo-workers-2", "rank 1 of 2 of run digits"
        )
        await seen.press("n")
        await seen.until(lambda: isinstance(seen.app.screen, DrillDialog))
        await seen.press("escape")
        await seen.press("colon", *"drill head-kill", "enter")
        await seen.sees("Inject head-kill?", "Type demo-head", "the HEAD: drivers on it die")
        await seen.press("enter")
        assert isinstance(seen.app.screen, Confirm)
        assert not seen.asked


async def test_form_has_presets_shows_mistakes_and_scrolls(cockpit: Open) -> None:
    async with cockpit(simulation=digits(kill_s=None)) as seen:
        await seen.press("6", "enter", "ctrl+r")
        await seen.sees("replicas-ready; throughput >= 80")
        await seen.press("ctrl+s")
        await seen.sees("It passes if: replicas-ready, throughput")
        await seen.press("n")
        await seen.until(lambda: isinstance(seen.app.screen, DrillDialog))
        await seen.press("escape", "j", "enter")
        await seen.until(lambda: isinstance(seen.app.screen, DrillDialog))
        await seen.press("end", *"x", "enter")
        await seen.sees("grace_s of pod-delete is '30x'.", "It has to be a number.")
        await seen.press("backspace", "tab", "end", *[*["backspace"] * 6], *"rank:7", "enter")
        await seen.sees("There is no living rank 7 in run digits.", "rank:7")
        assert isinstance(seen.app.screen, DrillDialog)
        await seen.press("escape")
        faults(seen.app).move_to("random-kills")
        await seen.press("enter")
        await seen.sees("Drill · random-kills", "6 Drills", "local:demo", "? help")
        for _ in range(20):
            await seen.press("tab")
            if isinstance(seen.app.focused, Button):
                break
        await seen.sees("Preview (ctrl+s)")


# -- conducting one


@asynccontextmanager
async def running_drill(seen: Seen, line: str) -> AsyncIterator[None]:
    """A drill that was typed and confirmed, until its fault is injected."""
    await seen.press("colon", *line, "enter")
    await seen.until(lambda: isinstance(seen.app.screen, Confirm))
    await seen.press("y")
    await seen.until(lambda: bool(seen.app.store.drills))
    yield


async def test_a_drill_is_followed_from_the_dry_run_to_its_abort(cockpit: Open) -> None:
    async with (
        cockpit(simulation=digits(kill_s=None), size=(120, 40)) as seen,
        running_drill(seen, "drill pod-kill rank:1"),
    ):
        assert ("delete_pod", "demo-workers-2", "0") in seen.asked
        await seen.sees("6 Drills", "recovering", "pod-kill of demo-workers-2", "X aborts")
        await seen.press("2")
        await seen.sees("drill pod-kill recovering", "X aborts")
        await seen.press("colon", *"drill pod-kill", "enter")
        await seen.until(lambda: "A drill is running: pod-kill." in seen.toasts)
        await seen.press("X")
        await seen.sees("Abort the drill?", "Its fault is undone")
        await seen.press("y")
        await seen.until(lambda: verdicts(seen.app) == [Verdict.ABORTED])
        await seen.until(lambda: "pod-kill aborted\nby the user" in seen.toasts)
        await seen.until(lambda: "drill pod-kill recovering" not in seen.text)
        await seen.press("6")
        await seen.sees("Earlier drills · 1", "aborted by the user")
        assert any(call[0] == "release" for call in seen.simulation.backend.asked)


async def test_a_game_day_is_asked_for_as_a_whole_and_aborted_as_one(
    cockpit: Open, tmp_path: Path
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'about = "Two in a row."\n[[step]]\ndrill = "pod-kill"\n[[step]]\nwait_s = 600\n'
    )
    async with cockpit(simulation=digits(kill_s=None), size=(120, 40)) as seen:
        await seen.press("colon", *f"drill {file}", "enter")
        await seen.sees("Run game day mine?", "Two in a row.", "1. pod-kill")
        await seen.press("y")
        await seen.until(lambda: bool(seen.app.store.drills))
        await seen.sees("game day mine", "step 1 of 2", "pod-kill of demo-workers-")
        await seen.press("X")
        await seen.sees("Abort game day mine.")
        await seen.press("y")
        await seen.until(lambda: "Game day mine failed" in seen.toasts)
        await seen.until(lambda: verdicts(seen.app) == [Verdict.ABORTED])
        assert seen.app.conducting is None


async def test_quitting_during_a_drill_asks_and_undoes_it_first(cockpit: Open) -> None:
    async with (
        cockpit(simulation=kube()) as seen,
        running_drill(seen, "drill network-isolate"),
    ):
        policy = next(call[2] for call in seen.asked if call[0] == "isolate")
        assert Journal().entries()
        await seen.press("q")
        await seen.sees("Quit?", "it is aborted and undone")
        await seen.press("n")
        assert seen.app.return_value is None
        assert not any(call[0] == "rejoin" for call in seen.asked)
        await seen.press("q", "q")
        await seen.until(lambda: seen.app.return_value is not None)
        assert ("rejoin", policy) in seen.asked
        assert not Journal().entries()


async def test_another_cluster_is_not_looked_at_while_a_drill_continues(cockpit: Open) -> None:
    async with (
        cockpit(simulation=digits(kill_s=None)) as seen,
        running_drill(seen, "drill pod-kill rank:1"),
    ):
        seen.app.switch(seen.simulation.backend.ref)
        await seen.until(lambda: "A drill is running: pod-kill." in seen.toasts)
        await seen.press("X", "y")
        await seen.until(lambda: bool(verdicts(seen.app)))


# -- looking at one


async def test_the_drill_is_reported_as_it_goes_by_phase_probe_and_what_ray_reports(
    cockpit: Open,
) -> None:
    async with cockpit(simulation=drilled(), at_s=83, size=(120, 40)) as seen:
        await seen.press("6")
        await seen.sees("recovering", "3.0 s since the fault", "✓ replicas-ready before", "detect")
        await seen.advance(95)
        await seen.sees("15.0 s since the fault", "start workers 6.5 s", "first step", "samples/s")
        await seen.sees("attempt 1 ended: Worker group is unhealthy")
        await seen.advance(114)
        await seen.sees("✗ throughput >= 80 % after: 61 %")


async def test_every_other_view_has_one_line_of_it(cockpit: Open) -> None:
    async with cockpit(simulation=drilled(), at_s=95, size=(120, 40)) as seen:
        for key in "1234578":
            await seen.press(key)
            await seen.sees("drill pod-kill recovering  15.0 s since the fault")
        await seen.press("6")
        await seen.until(lambda: "drill pod-kill recovering" not in seen.text)


async def test_a_fault_that_may_end_no_attempt_does_not_wait_for_ray(cockpit: Open) -> None:
    simulation = digits(kill_s=None)
    async with cockpit(simulation=simulation, size=(120, 40)) as seen:

        async def staged(stage: Stage, at_s: float) -> None:
            simulation.session.dispatch(
                DrillStaged(
                    at_s=START_S + at_s, source="user", drill_id="drill-1", name="slow-rank",
                    stage=stage,
                )
            )  # fmt: skip
            await seen.advance(at_s + 1)

        await staged(Stage.INJECTING, 60)
        drill = Drill(
            "drill-1.1", "slow-rank", "demo-workers-2", (1,), START_S + 61, 0.0, RUN, 1, 880
        )
        simulation.session.dispatch(DrillInjected(at_s=START_S + 61, source="user", drill=drill))
        await staged(Stage.DURING, 61)
        await seen.sees("drill slow-rank fault lasts", "waits for end of the fault")
        await staged(Stage.RECOVERING, 64)
        await seen.sees("slow-rank recovering", "waits for throughput back or attempt ended")
        await seen.press("6")
        await seen.sees("waits for throughput back or attempt ended", "outcome")
        assert "detected by Ray" not in seen.text


async def test_the_overview_waits_for_what_the_fault_will_show_first(cockpit: Open) -> None:
    simulation = digits(kill_s=None)
    async with cockpit(simulation=simulation) as seen:
        for fault, text in (
            ("pod-kill", "the pod to end"),
            ("rank-freeze", "an effect on the run"),
        ):
            drill = Drill("drill-1", fault, "demo-workers-2", (1,), START_S + 60, 0.0, RUN, 1, 880)
            simulation.session.dispatch(
                DrillInjected(at_s=START_S + 60, source="user", drill=drill)
            )
            await seen.advance(60.5)
            await seen.sees(f"waiting for {text}", f"{fault} of demo-workers-2")


async def test_on_a_small_screen_the_faults_have_what_the_drill_leaves(cockpit: Open) -> None:
    async with cockpit(simulation=drilled(), at_s=60) as seen:
        await seen.press("6")
        await seen.sees("Faults and game days ·", "Earlier drills · 4")
        await seen.advance(95)
        await seen.until(lambda: "Earlier drills" not in seen.text)
        await seen.sees("Drill · pod-kill", "RUNNING", "Faults and game days ·", "rank-kill")
        assert all(line.strip() for line in seen.text.splitlines()[:24]), "no line is left blank"
        await seen.press("j", "enter")
        await seen.until(lambda: isinstance(seen.app.screen, DrillDialog))


async def test_during_the_first_drill_no_text_reports_that_there_is_none(cockpit: Open) -> None:
    async with (
        cockpit(simulation=digits(kill_s=None), size=(120, 40)) as seen,
        running_drill(seen, "drill pod-kill rank:1"),
    ):
        await seen.sees("Earlier drills · 0", "the first one is running. Press X to abort it.")
        assert "No drill yet" not in seen.text
        await seen.press("X", "y")
        await seen.until(lambda: bool(verdicts(seen.app)))


async def test_drill_that_continues_fits_every_height_and_is_not_closed(cockpit: Open) -> None:
    async with cockpit(simulation=drilled(), at_s=95) as seen:
        await seen.press("6")
        await seen.sees("waits for first new step", "rank 1 died w…")
        await seen.press("escape")
        await seen.sees("Drill · pod-kill", "recovering")
        assert "esc closes" not in seen.text
        for height in (10, 14, 18, 24, 30, 40):
            await seen.pilot.resize_terminal(80, height)
            seen.app.redraw()
            await seen.pilot.pause()
            await seen.sees("Drill · pod-kill", "recovering")
            table = faults(seen.app)
            assert not table.display or table.size.height >= 3
            assert table.display or height < 24


async def test_a_drill_that_is_over_is_short_on_a_small_screen_and_esc_closes_it(
    cockpit: Open,
) -> None:
    async with cockpit(simulation=drilled(going=False), at_s=130) as seen:
        await seen.press("6")
        await seen.sees("Drill · pod-kill · drill-7c1e · esc closes", "start workers 6.5 s")
        assert "samples/s" not in seen.text
        assert faults(seen.app).size.height >= 8
        await seen.press("escape")
        await seen.until(lambda: "esc closes" not in seen.text)
        await seen.sees("Faults and game days ·", "Earlier drills · 5")


async def test_a_curve_of_a_drill_that_is_over_has_the_number_at_its_end(cockpit: Open) -> None:
    async with cockpit(simulation=drilled(going=False), at_s=130, size=(120, 40)) as seen:
        await seen.press("6")
        await seen.sees("esc closes", "loss  ", "now RUNNING")

        def numbers() -> list[str]:
            lines = seen.text.splitlines()
            return [line.split()[-1] for line in lines if line[1:].startswith(("loss", "samples"))]

        before = numbers()
        await seen.advance(170)
        await seen.sees("08:02:50")
        assert len(before) == 2
        assert numbers() == before


async def test_drills_that_another_cockpit_keeps_appear_by_themselves(
    cockpit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drills, "CHECK_EVERY_S", 0.0)
    monkeypatch.setattr("cockpit.tui.app.AT_LEAST_EVERY_S", 0.0)
    simulation = digits(kill_s=None)
    async with cockpit(simulation=simulation, size=(120, 40)) as seen:
        await seen.press("6")
        await seen.sees("Earlier drills · 0")
        mine = past("drill-else", -60.0, 1.0)
        DrillHistory().keep(KeptDrill(mine))
        await seen.sees("Earlier drills · 1", "18.5 s")


async def test_drills_are_not_read_again_while_none_is_added(
    cockpit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drills, "CHECK_EVERY_S", 0.0)
    simulation = digits(kill_s=None)
    reads = 0

    def earlier(actions: DrillActions) -> list[DrillRecord]:
        nonlocal reads
        reads += 1
        return []

    monkeypatch.setattr(DrillActions, "earlier_drills", earlier)
    async with cockpit(simulation=simulation) as seen:
        await seen.press("6")
        await seen.until(lambda: reads == 1)
        for _ in range(5):
            await seen.press("j")
            seen.app.redraw()
        assert reads == 1


async def test_a_rank_that_was_hit_is_named_before_its_pod(cockpit: Open) -> None:
    async with cockpit(simulation=drilled(), at_s=60, size=(160, 40)) as seen:
        await seen.press("6")
        await seen.sees("rank 0 · demo-workers-1", "MEDIAN")


async def test_the_key_for_a_drill_takes_the_fault_of_the_selected_row(cockpit: Open) -> None:
    async with cockpit(simulation=drilled(), at_s=60) as seen:
        await seen.press("6")
        faults(seen.app).move_to("raylet-kill")
        await seen.press("D")
        await seen.sees("Drill · raylet-kill")
        await seen.press("escape", "o", "D")
        await seen.sees("Drill · rank-freeze")


async def test_the_help_of_drills_reports_what_enter_and_the_dry_run_are(cockpit: Open) -> None:
    async with cockpit(size=(120, 60)) as seen:
        await seen.press("6", "question_mark")
        await seen.sees("Open the form of a fault", "or an earlier drill")
        await seen.sees("Preview", "the dry run", "MEDIAN")


async def test_the_verdict_is_reported_once_where_the_drill_is_looked_at(
    cockpit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    bells: list[int] = []
    monkeypatch.setattr(CockpitApp, "bell", lambda app: bells.append(1))
    async with (
        cockpit(simulation=digits(kill_s=None), size=(120, 40)) as seen,
        running_drill(seen, "drill pod-kill rank:1"),
    ):
        await seen.press("X", "y")
        await seen.sees("aborted by the user", "esc closes")
        await seen.until(lambda: seen.app.conducting is None)
        assert bells
        assert "pod-kill aborted" not in seen.toasts


async def test_a_drill_that_is_over_has_a_page_with_who_saw_what(cockpit: Open) -> None:
    async with cockpit(simulation=drilled(going=False), at_s=130, size=(120, 60)) as seen:
        await seen.press("6", "o")
        await seen.sees("failed", "after the recovery: throughput >= 80 %: 61 %")
        await seen.press("enter")
        assert isinstance(seen.app.screen, DrillScreen)
        await seen.sees("checkpoint restored", "+700 ms", "telemetry", "steps lost  12")
        await seen.sees(
            "counted against max_failures", "the backend sent no data from 12 s to 13 s"
        )
        await seen.sees("2 more restarts are left")
        await seen.press("G")
        await seen.sees(
            "THIS   MEDIAN   SPREAD  OF", "first new step       18.5 s   24.1 s    8.2 s  3"
        )
        await seen.press("escape")
        await seen.sees("Faults and game days ·")


async def test_drills_of_days_before_are_compared_with_and_one_that_is_slower_is_an_outlier(
    cockpit: Open,
) -> None:
    simulation = digits(kill_s=None)
    for earlier in (
        *(past(f"drill-{day}", -86_400.0 * day, 1.0 + day / 100) for day in range(1, 5)),
        past("drill-new", -60.0, 3.0),
    ):
        DrillHistory().keep(KeptDrill(earlier))
    async with cockpit(simulation=simulation, size=(120, 50)) as seen:
        await seen.press("6", "o")
        await seen.sees("Earlier drills · 5", "1 d ago", "55.5 s", "19.0 s")
        await seen.press("enter", "G")
        await seen.sees("first new step", "worse than usual")


async def test_a_kill_by_hand_is_among_the_earlier_drills(cockpit: Open) -> None:
    async with cockpit(at_s=110) as seen:
        seen.app.clear_notifications()  # the toast of the recovery covers the table for 10 s
        await seen.press("6", "o")
        await seen.sees("Earlier drills · 1", "by hand", "18.5 s")
        await seen.press("enter")
        await seen.sees("A kill: measured", "first new step")


async def test_a_name_from_the_cluster_cannot_write_on_the_screen(cockpit: Open) -> None:
    async with cockpit(simulation=drilled(), at_s=95, size=(120, 40)) as seen:
        session = seen.simulation.session
        text = "[red]look[/red]\x1b[2J\nnext"
        session.dispatch(
            DrillStaged(at_s=START_S + 95, source="user", drill_id=RECORD, name=text,
                        stage=Stage.DURING, message=text)
        )  # fmt: skip
        await seen.advance(95.5)
        await seen.press("6")
        await seen.sees("[red]look[/red]")
        await seen.press("1")
        await seen.sees("[red]look[/red]")


# -- a recording


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("drilled") / "digits.cockpit"
    record(path, sorted(_events(80.0, False), key=lambda event: event.at_s))
    return path


async def test_a_recording_shows_the_drill_as_it_was_and_starts_none(path: Path) -> None:
    player = Player(Recording.open(path), speed=10, paused=True, wall=lambda: 0.0)
    player.seek(START_S + 95)
    player.settle()
    made = connection(player)
    app = ReplayApp(lambda say: made)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        async with asyncio.timeout(10):
            while app.connection is None or not app.capabilities:
                await pilot.pause(0.02)
        await pilot.press("6")
        await pilot.pause()
        text = text_of(app)
        assert "recovering  15.0 s since the fault" in text
        assert "this is a recording" in text.casefold()
        await pilot.press("D")
        await pilot.pause()
        assert any("This is a recording." in note.message for note in app._notifications)
    made.close()


async def test_a_drill_that_another_cockpit_holds_is_reported(
    cockpit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drills, "CHECK_EVERY_S", 0.0)
    monkeypatch.setattr("cockpit.tui.app.AT_LEAST_EVERY_S", 0.0)
    simulation = digits(kill_s=None)
    async with cockpit(simulation=simulation) as seen:
        await seen.press("6")
        await seen.sees("Earlier drills")
        simulation.backend.held_by = "ana@bastion:7 (drill-1)"
        await seen.sees("another user's drill is running: ana@bastion:7 (drill-1)")
        simulation.backend.held_by = ""
        await seen.until(lambda: "ana@bastion" not in seen.text)
