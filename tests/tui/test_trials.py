"""View 7: the trials of a search, the best marked, sorted and filtered."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace

from cockpit.model.event import TrialsListed
from cockpit.model.run import Trial, TrialStatus
from cockpit.store.store import Store
from cockpit.store.trials import best, varied
from cockpit.tui.app import CockpitApp
from cockpit.tui.changes.actions import Connection
from cockpit.tui.dialogs.reading import Reading
from cockpit.tui.rows.sort import Order
from cockpit.tui.views.trials.rows import TrialRows
from cockpit.tui.widgets.table.table import LineTable
from tests.tui.conftest import Open, Seen
from tests.tui.simulated import START_S, Simulation
from tests.tui.test_app_snapshots import Compare, shown
from tests.tui.tuned import EXPERIMENT, tuned


def store_at(second: float = 60.0) -> Store:
    simulation = tuned()
    simulation.advance(second)
    simulation.session.drain()
    return simulation.session.store


def keys(store: Store, order: Order) -> list[str]:
    rows = TrialRows().rows(store, START_S + 60, order)
    return [key.rpartition("_")[2] for key in rows.keys]


def test_the_best_comes_first_by_the_experiments_own_metric_and_is_marked() -> None:
    store = store_at()
    experiment = store.experiments[EXPERIMENT]
    top = best(experiment)
    assert top is not None
    values = {t.id: t.metrics["val_loss"] for t in experiment.trials.values() if t.metrics}
    assert values[top.id] == min(values.values())
    assert keys(store, Order())[0] == top.id.rpartition("_")[2]
    experiment.mode = "max"
    other = best(experiment)
    assert other is not None
    assert values[other.id] == max(values.values())
    experiment.mode = ""
    assert best(experiment) is None, "nobody said which way is better"


def test_only_parameters_that_differ_have_columns() -> None:
    store = store_at()
    trials = list(store.experiments[EXPERIMENT].trials.values())
    assert varied(trials) == ["depth", "lr"]
    assert varied(trials[:1]) == ["data", "depth", "lr"]
    rows = TrialRows()
    rows.rows(store, START_S + 60, Order())
    found = [column.key for column in rows.columns]
    assert "config.lr" in found
    assert "config.data" not in found
    assert found.index("metric.val_loss") < found.index("metric.accuracy")


def test_sampled_numbers_are_shortened_and_whole_results_have_no_decimals() -> None:
    store = store_at()
    experiment = store.experiments[EXPERIMENT]
    name, trial = next(iter(experiment.trials.items()))
    config = {**trial.config, "lr": "0.004884121377763905", "depth": "1e-05"}
    experiment.trials[name] = replace(trial, config=config, metrics={"epoch": 30.0})
    rows = TrialRows()
    found = rows.rows(store, START_S + 60, Order())
    cells = next(row.cells for row in found if row.key.endswith(trial.id))
    shown = {column.key: cell.text for column, cell in zip(rows.columns, cells, strict=True)}
    assert (shown["config.lr"], shown["config.depth"]) == ("0.004884", "1e-05")
    assert shown["metric.epoch"] == "30"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lr<0.01", {"00002", "00003", "00006", "00007"}),
        ("depth=3 status=running", {"00004"}),
        ("failed", {"00003"}),
        ("best", {"00002"}),
        ("device-side", {"00003"}),
        ("val_loss>1e9", set()),
    ],
)
def test_trials_are_filtered_by_parameters_and_results(text: str, expected: set[str]) -> None:
    assert set(keys(store_at(), Order(text=text))) == expected


def test_sorting_puts_trials_without_the_number_last() -> None:
    store = store_at()
    for down in (False, True):
        assert set(keys(store, Order(by="metric.accuracy", down=down))[-2:]) == {"00006", "00007"}


def test_a_trials_curve_has_a_point_a_result() -> None:
    store = store_at()
    experiment = store.experiments[EXPERIMENT]
    curve = experiment.curves["train_00000"]
    assert len(curve) == 10
    reported = experiment.trials["train_00000"]
    event = TrialsListed(
        at_s=START_S + 61,
        source="telemetry",
        experiment=EXPERIMENT,
        trials=(replace(reported, status=TrialStatus.PAUSED),),
    )
    store.apply(event)
    assert len(curve) == 10, "the same result told twice is one point"
    assert experiment.trials["train_00000"].status is TrialStatus.PAUSED


def test_odd_results_do_not_make_a_best_trial() -> None:
    store = Store()
    trial = Trial("t", "e", TrialStatus.RUNNING, metrics={"loss": float("nan")}, iteration=1)
    store.apply(
        TrialsListed(
            at_s=1.0, source="t", experiment="e", trials=(trial,), metric="loss", mode="min"
        )
    )
    assert best(store.experiments["e"]) is None
    rows = TrialRows().rows(store, 2.0, Order())
    assert "NaN" in [cell.text for cell in rows[0].cells]


async def press(seen: Seen, *pressed: str) -> None:
    await seen.press(*pressed)
    seen.app.redraw()
    await seen.pilot.pause()


async def test_without_an_experiment_one_sentence_reports_it(cockpit: Open) -> None:
    async with cockpit(at_s=60) as seen:
        await press(seen, "7")
        await seen.sees("No Tune trials yet. Press L")


async def test_enter_reads_all_of_a_trial_without_its_control_sequences(cockpit: Open) -> None:
    async with cockpit(at_s=60, size=(120, 30), simulation=tuned()) as seen:
        await press(seen, "7", "slash", *"failed", "enter", "enter")
        await seen.until(lambda: isinstance(seen.app.screen, Reading))
        await seen.sees("Trial train_00003", "RuntimeError: CUDA error: device-side", "lr")
        assert "[31m" not in seen.text
        await press(seen, "escape")
        await press(seen, "y")
        await seen.sees("experiment: lr-search")


async def test_the_table_follows_the_trials(cockpit: Open) -> None:
    async with cockpit(at_s=36, size=(120, 30), simulation=tuned()) as seen:
        await press(seen, "7")
        await seen.sees("6 running", "2 pending")
        await seen.advance(60)
        await seen.sees("4 running", "1 error", "1 terminated", "best val_loss (min)")


async def test_table_has_the_focus_whenever_there_are_trials(cockpit: Open) -> None:
    async with cockpit(at_s=10, size=(120, 30), simulation=tuned()) as seen:
        await press(seen, "7")
        await seen.sees("No Tune trials yet")
        table = seen.app.screen.query_one("#trials", LineTable)
        await seen.advance(36)
        await seen.until(lambda: table.has_focus)
        seen.app.store.experiments.clear()
        await seen.advance(38)
        await seen.sees("No Tune trials yet")
        await seen.until(lambda: not table.has_focus)
        await seen.advance(60)
        await seen.until(lambda: table.has_focus)


@pytest.fixture
def opened() -> Iterator[Callable[[Simulation, float], CockpitApp]]:
    simulations: list[Simulation] = []

    def start(simulation: Simulation, at_s: float) -> CockpitApp:
        simulations.append(simulation)
        simulation.advance(at_s)
        simulation.session.start()
        connection = Connection(simulation.session, simulation.actions)
        return CockpitApp(lambda say: connection, cluster="local:demo")

    yield start
    for simulation in simulations:
        simulation.session.close()


@pytest.mark.parametrize("size", [(80, 24), (200, 50)], ids=["80x24", "200x50"])
def test_a_search(
    opened: Callable[[Simulation, float], CockpitApp], snap_compare: Compare, size: tuple[int, int]
) -> None:
    assert snap_compare(
        opened(tuned(24), 60), terminal_size=size, run_before=lambda pilot: shown(pilot, "trials")
    )
