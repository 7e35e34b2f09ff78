from __future__ import annotations

import asyncio
import math

import pytest
from msgspec.structs import replace

from cockpit.model.event import RankSampled, RunSeen
from cockpit.model.run import RunState
from cockpit.sources.mlflow.settings import MlflowSettings
from cockpit.sources.mlflow.source import MlflowSource
from cockpit.store.selectors import current_run
from cockpit.tui.main.frame import Tabs
from cockpit.tui.main.screen import MainScreen
from cockpit.tui.view_state import ViewState
from cockpit.tui.views.overview.view import OverviewView
from cockpit.tui.views.ranks.page import RankScreen
from tests.sources.raw_server import RawServer
from tests.tui.conftest import Open, Seen


async def test_a_fault_while_drawing_is_reported_in_its_view_and_the_others_continue(
    cockpit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cockpit() as seen:
        screen = seen.app.screen
        assert isinstance(screen, MainScreen)

        def broken(view_state: ViewState) -> None:
            raise ValueError("no such thing")

        with monkeypatch.context() as patch:
            patch.setattr(screen.view, "redraw", broken)
            seen.app.redraw()
            await seen.sees("A bug in cockpit", "ValueError: no such")
            await seen.press("4")
            await seen.sees("demo-workers-2")
        await seen.press("1")
        await seen.until(lambda: "A bug in cockpit" not in seen.text)


async def test_server_that_does_not_answer_affects_only_its_view(cockpit: Open) -> None:
    server = RawServer(lambda _: b"", hang=True)
    async with server.serve(), cockpit(size=(120, 40)) as seen:
        source = MlflowSource(MlflowSettings(server.url))
        seen.simulation.session.add(source)
        await asyncio.wait_for(server.first.wait(), 10)
        await seen.press(*":experiments", "enter")
        await seen.sees("No experiments yet: waiting for MLflow.")
        await seen.press("escape", "2")
        await seen.sees("RANK")
        before = current_step(seen)
        await seen.advance(70.0)
        assert current_step(seen) > before
        await seen.sees(f"{current_step(seen):,}")
        assert len(server.asked) == 1, "it still waits for the first answer"


def current_step(seen: Seen) -> int:
    run = current_run(seen.app.store)
    assert run is not None
    assert run.step is not None
    return run.step


async def test_a_run_that_gave_up_is_no_success(cockpit: Open) -> None:
    async with cockpit(simulation=None) as seen:
        end_with_nan(seen)
        await seen.sees("STOPPED EARLY", "stopped: the loss is NaN", "loss       NaN")
        await seen.press("2")
        await seen.sees("NaN")


async def test_a_ranks_page_has_its_own_help_and_quits_as_its_footer_reports(cockpit: Open) -> None:
    async with cockpit() as seen:
        await seen.press("2", "enter")
        assert isinstance(seen.app.screen, RankScreen)
        await seen.press("question_mark")
        await seen.sees("Keys · Rank", "Back to the ranks")
        await seen.press("escape", "escape")
        assert isinstance(seen.app.screen, MainScreen)
        await seen.press("enter", "q")
        await seen.until(lambda: seen.app.return_value is not None)


def end_with_nan(seen: Seen) -> None:
    run = current_run(seen.app.store)
    assert run is not None
    samples = tuple(
        replace(rank.sample, at_s=rank.sample.at_s + 1, loss=math.nan)
        for rank in run.ranks.values()
        if rank.sample is not None
    )
    at_s = max(sample.at_s for sample in samples)
    session = seen.simulation.session
    session.dispatch(RankSampled(at_s=at_s, source="telemetry", run_id=run.id, samples=samples))
    session.dispatch(
        RunSeen(
            at_s=at_s,
            source="telemetry",
            run_id=run.id,
            name=run.name,
            state=RunState.FINISHED,
            message="stopped: the loss is NaN at step 12",
        )
    )
    seen.app.tick()


async def test_redraw_while_the_screen_is_removed_draws_nothing(
    cockpit: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Textual removes the parts of a screen one after another when the application ends."""
    parts: list[bool] = []

    async def on_unmount(self: OverviewView) -> None:
        screen = self.screen
        await asyncio.gather(*(tabs._task for tabs in screen.query(Tabs) if tabs._task))
        parts.append(bool(screen.children))
        self.cockpit.redraw()

    monkeypatch.setattr(OverviewView, "on_unmount", on_unmount, raising=False)
    async with cockpit() as seen:
        await seen.sees("Cluster")
    assert parts == [True]
    assert "could not be drawn" not in caplog.text
