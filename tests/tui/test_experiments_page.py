"""The page of MLflow's runs: list, one run, and two beside each other."""

from __future__ import annotations

import pytest

from cockpit.model.event import SourceHealth, TrackedRunsListed
from cockpit.model.tracking import ModelVersion, TrackedRun
from cockpit.tui.dialogs.reading import Reading
from cockpit.tui.views.detail_screen import DetailScreen
from cockpit.tui.views.drills.page import DrillScreen
from cockpit.tui.views.experiments.page import ExperimentsPage
from cockpit.tui.views.hang.page import HangPage
from cockpit.tui.views.ranks.page import RankScreen
from tests.tui.conftest import Open, Seen
from tests.tui.simulated import START_S

RUNS = (
    TrackedRun(
        "a1", "baseline", "digits", "FINISHED", START_S - 900, START_S - 300,
        params={"lr": "0.1", "width": "64"}, metrics={"loss": 0.41, "accuracy": 0.9},
        artifacts=("model/",), url="http://mlflow.test/#/runs/a1", run_id="other",
        models=(ModelVersion("digits", "3", ("best",), "http://mlflow.test/#/models/digits/3"),),
    ),
    TrackedRun(
        "b2", "digits", "digits", "RUNNING", START_S,
        params={"lr": "0.2", "width": "64"}, metrics={"loss": 0.33, "accuracy": 0.9},
    ),
)  # fmt: skip


def listed(seen: Seen) -> None:
    event = TrackedRunsListed(at_s=START_S + 60, source="mlflow", runs=RUNS)
    seen.app.store.apply(event)
    seen.app.tick()


async def test_list_has_the_newest_run_first_with_what_differs(cockpit: Open) -> None:
    for size in ((80, 24), (200, 50)):
        async with cockpit(size=size) as seen:
            listed(seen)
            await seen.press(*":experiments", "enter")
            await seen.sees("Experiments · 2 in MLflow", "baseline", "RUNNING", "10 m 00 s")
            lines = [line for line in seen.text.split("\n") if "loss=" in line]
            assert "loss=0.33" in lines[0]
            assert "loss=0.41" in lines[1]
            assert "width=64" not in seen.text, "it is the same in both"


async def test_enter_shows_one_run_and_c_compares_two(cockpit: Open) -> None:
    async with cockpit(size=(120, 40)) as seen:
        listed(seen)
        await seen.press(*":experiments", "enter")
        await seen.sees("2 in MLflow")
        await seen.press("c")
        await seen.until(lambda: "Mark a run with space" in seen.toasts)
        await seen.press("space", "j", "enter")
        await seen.until(lambda: isinstance(seen.app.screen, Reading))
        await seen.sees("Run baseline", "http://mlflow.test/#/runs/a1", "width", "model/")
        await seen.sees("digits 3", "best", "http://mlflow.test/#/models/digits/3")
        await seen.press("escape", "c")
        await seen.sees("Two runs", "Metrics: 1 of 2 differ", "Parameters: 1 of 2 differ", "+0.08")


async def test_click_on_the_key_opens_the_run(cockpit: Open) -> None:
    async with cockpit(size=(120, 40)) as seen:
        listed(seen)
        await seen.press(*":experiments", "enter")
        await seen.sees("2 in MLflow")
        x = seen.text.splitlines()[-1].index("enter open")
        await seen.pilot.click("KeyBar", offset=(x, 0))
        await seen.until(lambda: isinstance(seen.app.screen, Reading))
        await seen.sees("Run digits")


@pytest.mark.parametrize("page", [DrillScreen, ExperimentsPage, HangPage, RankScreen])
def test_each_key_in_the_footer_of_a_page_can_be_clicked(page: type[DetailScreen]) -> None:
    assert [key.id for key in page.KEYS if not hasattr(page, f"action_{key.id}")] == []


async def test_empty_page_reports_why(cockpit: Open) -> None:
    async with cockpit() as seen:
        await seen.press(*":experiments", "enter")
        await seen.sees("waiting for MLflow")
        why = "no MLflow is configured: [mlflow] uri"
        seen.app.store.apply(
            SourceHealth(at_s=START_S, source="mlflow", ok=True, absent=True, error=why)
        )
        seen.app.tick()
        await seen.sees(why)
        seen.app.store.apply(SourceHealth(at_s=START_S, source="mlflow", ok=True))
        seen.app.tick()
        await seen.sees("No run of MLflow belongs to a run here")
