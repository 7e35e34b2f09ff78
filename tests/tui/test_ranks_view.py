"""View 2: the table, the heat map over it, and the selection."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

from cockpit.model.event import RankSampled
from cockpit.tui.app import CockpitApp
from cockpit.tui.changes.actions import Connection
from cockpit.tui.terminal.symbols import Symbols, use_symbols
from cockpit.tui.views.ranks.page import RankScreen
from cockpit.tui.views.ranks.view import RanksView
from cockpit.tui.widgets.heatmap import HeatCell, HeatMap, strip_lines
from cockpit.tui.widgets.table.table import Cell, Column, LineTable, Row
from tests.tui.conftest import Open, Seen
from tests.tui.simulated import RUN, START_S, Simulation, digits, wide
from tests.tui.stage import Stage, lines, watch_repaints
from tests.tui.test_app_snapshots import Compare, shown


def uneven(ranks: int = 1000) -> Simulation:
    """A large run in which some ranks are slow, hot, broken or stale."""
    simulation = wide(ranks, until_s=30)
    simulation.advance(30)
    simulation.session.drain()
    run = simulation.session.store.runs[RUN]
    changes: dict[int, dict[str, object]] = {
        17: {"step_time_s": 0.21, "gpu_utilization_percent": 31.0},
        300: {"step_time_s": 0.08, "gpu_throttle": "power cap"},
        301: {"gpu_xid": 79, "loss": float("nan"), "step_time_s": 0.4},
        640: {"gpu_ecc_errors": 3},
    }
    samples = []
    for rank, changed in changes.items():
        sample = run.ranks[rank].sample
        assert sample is not None
        samples.append(replace(sample, at_s=START_S + 30.5, **changed))
    simulation.session.dispatch(
        RankSampled(at_s=START_S + 30.5, source="telemetry", run_id=RUN, samples=tuple(samples))
    )
    return simulation


async def press(seen: Seen, *keys: str) -> None:
    await seen.press(*keys)
    seen.app.redraw()
    await seen.pilot.pause()


async def test_heat_map_of_a_thousand_ranks_is_moved_coloured_filtered_and_opened(
    cockpit: Open,
) -> None:
    async with cockpit(at_s=30.6, size=(120, 40), simulation=uneven()) as seen:
        await press(seen, "2")
        heat = seen.app.screen.query_one(HeatMap)
        table = seen.app.screen.query_one("#ranks", LineTable)
        assert heat.display
        assert heat.fold == 1
        await seen.sees("STEP TIME  ▄ p10", "outliers: ranks 301, 17, 300")
        await press(seen, "j", "j", "j")
        assert heat.rank == 3
        await press(seen, "c")
        await seen.sees("GPU  ▄ p10")
        await press(seen, "c")
        await seen.sees("LOSS  ▄ p10")
        await press(seen, "slash", *"step_time")
        await press(seen, "greater_than_sign", *"0.1", "enter")
        await seen.sees("2 of 1,000 ranks with “step_time>0.1”")
        await press(seen, "escape", "slash", *"sped", "greater_than_sign", *"1", "enter")
        await seen.sees("there is no column sped")
        await press(seen, "escape", "o")
        assert heat.has_focus
        await press(seen, "right", "right", "down", "left")
        assert heat.rank is not None
        assert table.cursor_key == str(heat.rank)
        chosen = heat.rank
        assert chosen > 100
        await press(seen, "enter")
        await seen.until(lambda: isinstance(seen.app.screen, RankScreen))
        screen = seen.app.screen
        assert isinstance(screen, RankScreen)
        assert screen.rank == chosen


async def test_heat_map_is_a_strip_full_or_hidden_and_leaves_room_for_the_table(
    cockpit: Open,
) -> None:
    async with cockpit(at_s=30.6, size=(80, 24), simulation=uneven()) as seen:
        await press(seen, "2")
        heat = seen.app.screen.query_one(HeatMap)
        table = seen.app.screen.query_one("#ranks", LineTable)
        assert heat.fold > 1
        await seen.sees("a cell is the worst of")
        await press(seen, "H")
        assert (heat.display, table.display, heat.fold) == (True, False, 1)
        assert heat.has_focus, "there is nothing else to move in"
        for size, has_table in (((200, 50), True), ((80, 24), False), ((120, 40), True)):
            await press(seen, "1")
            await seen.pilot.resize_terminal(*size)
            await press(seen, "2")
            assert (heat.display, table.display) == (True, has_table)
        await seen.pilot.resize_terminal(80, 24)
        await press(seen, "H")
        assert (heat.display, table.display) == (False, True)
        assert table.has_focus
        await press(seen, "H")
        assert (heat.display, table.display) == (True, True)
        await seen.pilot.resize_terminal(200, 50)
        await press(seen, "slash", *"warning", "enter")
        await seen.sees("3 of 1,000", "Xid 79", "ECC 3", "throttled: power cap")


async def test_heat_map_of_few_ranks_is_hidden_and_never_replaces_the_table(cockpit: Open) -> None:
    async with cockpit(at_s=60, size=(120, 40)) as seen:
        await press(seen, "2")
        heat = seen.app.screen.query_one(HeatMap)
        table = seen.app.screen.query_one("#ranks", LineTable)
        assert not heat.display
        assert "outliers" not in seen.text
        for is_there in (True, False, True):
            await press(seen, "H")
            assert (heat.display, table.display) == (is_there, True)
        # A view that has no size yet has no heat map.
        view = RanksView()
        await seen.app.screen.query_one("#view").mount(view)
        view.display = False
        await seen.pilot.pause()
        view.draw(seen.app.view_state())
        assert not view.query_one(HeatMap).display


async def test_only_cells_that_changed_are_painted_again() -> None:
    heat = HeatMap()
    cells = [HeatCell(rank, 2) for rank in range(100)]
    app = Stage(heat)
    async with app.run_test(size=(60, 10)) as pilot:
        heat.styles.height = 5
        heat.show(cells, [(("X", "bold"),)])
        await pilot.pause()
        seen = watch_repaints(heat)
        heat.show([*cells[:7], HeatCell(7, 4), *cells[8:]], [(("X", "bold"),)])
        assert [(region.y, region.width) for region in seen] == [(1, 1)]
        seen.clear()
        heat.show([*cells[:7], HeatCell(7, 4), *cells[8:]], [(("X", "bold"),)])
        assert seen == []


async def test_a_row_of_which_all_cells_change_is_painted_in_one_stretch() -> None:
    table = LineTable([Column(name, name, width=4) for name in "abcdef"])
    async with Stage(table).run_test(size=(60, 8)) as pilot:
        table.set_rows([Row("x", tuple(Cell("1") for _ in range(6)))])
        await pilot.pause()
        seen = watch_repaints(table)
        table.set_rows([Row("x", tuple(Cell("2") for _ in range(6)))])
        assert [(region.x, region.y, region.height) for region in seen] == [(0, 1, 1)]


@pytest.mark.parametrize("kind", [Symbols.BRAILLE, Symbols.ASCII])
async def test_heat_map_level_is_visible_without_color(kind: Symbols) -> None:
    use_symbols(kind)
    try:
        heat = HeatMap()
        app = Stage(heat, theme="ansi-16")
        async with app.run_test(size=(40, 4)) as pilot:
            heat.styles.height = 3
            levels = (0, 1, 2, 3, 4, 5, -1, -2)
            heat.show([HeatCell(n, level) for n, level in enumerate(levels)], [(("X", ""),)])
            await pilot.pause()
            [drawn] = [line.split()[-1] for line in lines(heat)[1:2]]
            assert drawn == ("_-=+#!x." if kind is Symbols.ASCII else "▁▃▄▆█!x·")
            assert len(set(drawn)) == len(levels)
    finally:
        use_symbols(None)


async def test_a_cell_of_several_ranks_shows_the_worst_that_the_filter_leaves() -> None:
    heat = HeatMap()
    app = Stage(heat)
    async with app.run_test(size=(22, 4)) as pilot:
        heat.styles.height = 2
        cells = [HeatCell(rank, 4 if rank == 5 else 2) for rank in range(32)]
        heat.show(cells, [(("X", ""),)])
        await pilot.pause()
        assert heat.fold == 2
        assert lines(heat)[1].split() == ["0", "▄▄█" + "▄" * 13]
        heat.show([cell._replace(is_dim=cell.rank == 5) for cell in cells], [(("X", ""),)])
        await pilot.pause()
        assert lines(heat)[1].split() == ["0", "▄" * 16]


def test_lines_hold_whole_nodes() -> None:
    assert strip_lines(1000, 200, 20) == 6
    assert strip_lines(64, 80, 20) == 1
    assert strip_lines(0, 80, 20) == 0
    assert strip_lines(1000, 100, 8) == 6, "two ranks a cell fill six lines of the eight"


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


@pytest.mark.parametrize(
    ("keys", "size"),
    [((), (80, 24)), ((), (200, 50)), (("H",), (80, 24))],
    ids=["strip-80x24", "strip-200x50", "full-80x24"],
)
def test_a_thousand_uneven_ranks(
    opened: Callable[[Simulation, float], CockpitApp],
    snap_compare: Compare,
    keys: tuple[str, ...],
    size: tuple[int, int],
) -> None:
    app = opened(uneven(), 30.6)
    assert snap_compare(
        app, terminal_size=size, run_before=lambda pilot: shown(pilot, "ranks", *keys)
    )


@pytest.mark.parametrize("size", [(80, 24), (200, 50)], ids=["80x24", "200x50"])
def test_two_ranks(
    opened: Callable[[Simulation, float], CockpitApp], snap_compare: Compare, size: tuple[int, int]
) -> None:
    async def without_toast(pilot: Pilot[int]) -> None:
        """The recovery before is reported once, in a toast that would cover the snapshot."""
        await shown(pilot, "ranks")
        app.tick()
        app.clear_notifications()
        await pilot.pause()
        app.redraw()

    app = opened(digits(), 110)
    assert snap_compare(app, terminal_size=size, run_before=without_toast)
