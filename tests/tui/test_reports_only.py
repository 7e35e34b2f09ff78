"""A script without telemetry: its reports are shown instead of steps."""

from __future__ import annotations

from cockpit.model.event import MetricsReported, RankSampled
from cockpit.model.run import Checkpoint, RankMetrics
from cockpit.tui.widgets.table.table import LineTable
from tests.tui.conftest import Open
from tests.tui.simulated import RUN, START_S, Simulation, digits


def reporting() -> Simulation:
    simulation = digits(kill_s=None)
    simulation._script = [
        event
        for event in simulation._script
        if not isinstance(event, RankSampled | MetricsReported)
    ]
    for epoch in range(1, 9):
        by_rank = tuple(
            RankMetrics(rank, {"train_loss": (1 + rank) / epoch, "epoch": float(epoch)})
            for rank in range(2)
        )
        checkpoint = Checkpoint(None, f"/results/checkpoint_{epoch}", {}, 70_921, 0.489)
        simulation._script.append(
            MetricsReported(
                at_s=START_S + 30 + 3 * epoch,
                source="telemetry",
                run_id=RUN,
                attempt=1,
                metrics={"train_loss": 1.5 / epoch, "epoch": float(epoch), "lr": 0.01},
                checkpoint=checkpoint,
                ranks=by_rank,
            )
        )
    simulation._script.sort(key=lambda event: event.at_s)
    return simulation


async def test_the_overview_draws_what_is_reported_the_loss_first(cockpit: Open) -> None:
    async with cockpit(at_s=60, size=(120, 40), simulation=reporting()) as seen:
        await seen.sees("train loss (reported)  ● 0.1875", "lr (reported)")
        await seen.sees("epoch      8", "loss       0.1875", "lr         0.01")
        await seen.sees("ckpt size  69.3 KiB", "ckpt time  489 ms")
        await seen.sees("last report 6 s ago; this run sends no samples per step")
        assert "waiting for the ranks" not in seen.text
        assert "samples/s" not in seen.text


async def test_the_table_of_ranks_has_a_column_for_each_number_reported(cockpit: Open) -> None:
    async with cockpit(at_s=60, size=(120, 40), simulation=reporting()) as seen:
        await seen.press("2")
        await seen.sees("TRAIN_LOSS", "EPOCH", "attempt 1 reports only, and no steps")
        await seen.sees("train loss (reported)", "epoch (reported)")
        assert "stale" not in seen.text, "a script reports when it likes"
        await seen.press("slash", *"train_loss>0.2", "enter")
        await seen.sees("1 of 2 ranks")
        table = seen.app.screen.query_one("#ranks", LineTable)
        assert [row.key for row in table.rows] == ["1"]
        await seen.press("enter")
        await seen.sees("last report 6 s ago", "train_loss 0.2500", "lr (reported)")


async def test_charts_come_back_to_samples_when_another_run_reports_them(cockpit: Open) -> None:
    async with cockpit(at_s=60, size=(120, 40), simulation=reporting()) as seen:
        await seen.sees("train loss (reported)")
        for event in digits(kill_s=None)._script:
            if isinstance(event, RankSampled) and event.at_s <= START_S + 60:
                seen.simulation.session.dispatch(event)
        await seen.advance(61)
        await seen.sees("Samples  ●")
        assert "(reported)" not in seen.text
