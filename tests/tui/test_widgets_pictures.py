"""Pictures of the widgets, at the widths of a small terminal and of a wide one."""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Callable, Iterator

import pytest
from textual.containers import Vertical

from cockpit.model.drill import Drill, Recovery
from cockpit.store.store import LogBuffer
from cockpit.tui.terminal.symbols import Symbols, use_symbols
from cockpit.tui.widgets.bars.recovery import RecoveryBar
from cockpit.tui.widgets.chart.chart import Curve, LineChart, Mark
from cockpit.tui.widgets.log.view import LogView
from cockpit.tui.widgets.table.table import Cell, Column, LineTable, Row
from tests.tui.stage import Stage

T0 = 1_700_000_000.0
WIDTHS = [80, 160]
Compare = Callable[..., bool]


@pytest.fixture(autouse=True)
def _symbols() -> Iterator[None]:
    use_symbols(Symbols.BRAILLE)
    yield
    use_symbols(None)


def pods() -> LineTable:
    return LineTable(
        (
            Column("pod", "Pod", min_width=16, grow=2),
            Column("phase", "Phase"),
            Column("cpu", "CPU", align="right"),
            Column("memory", "Memory", align="right"),
            Column("ip", "IP", priority=1),
            Column("why", "Reason", min_width=12, grow=1, priority=2),
        )
    )


def fill(table: LineTable) -> None:
    rows = [
        Row(
            f"demo-worker-gpu-{n:02d}",
            (
                Cell(f"demo-worker-gpu-{n:02d}-x7kq9" + ("-日本" if n == 4 else "")),
                Cell("Failed", "bold bad") if n == 2 else Cell("Running", "good"),
                Cell(f"{n * 7} %"),
                Cell(f"{n}.5 GiB"),
                Cell(f"10.0.0.{n}", "muted"),
                Cell("OOMKilled: used more than its limit of 16 GiB" if n == 2 else "", "warning"),
            ),
        )
        for n in range(20)
    ]
    table.set_rows(rows)
    table.set_sort("cpu", True)
    table.move_to("demo-worker-gpu-03")
    table.focus()


def plot(chart: LineChart) -> None:
    times = array("d", [T0 + n for n in range(800) if not 500 <= n < 540])
    curves = []
    for rank in range(3):
        values = [2.3 * math.exp(-(t - T0) / 250) + 0.4 * rank for t in times]
        values[300:340] = [math.nan] * 40
        curves.append(Curve(f"rank {rank}", times, array("d", values), f"curve-{rank + 1}"))
    chart.set_curves(curves, T0 + 800)
    chart.set_marks(
        [
            Mark(T0 + 200, "pod-kill", "drill"),
            Mark(T0 + 230, "attempt 2", "attempt"),
            Mark(T0 + 100, "", "checkpoint"),
            Mark(T0 + 650, "note", "mark"),
        ]
    )


def scroll(view: LogView) -> None:
    texts = [
        f"(RayTrainWorker pid={n}, ip=10.0.0.3) step {n} [red]literal[/red]" for n in range(60)
    ]
    texts += ["ValueError: boom " + "x" * 200, "2026-01-01 WARNING step 7 is slow"]
    view.show(LogBuffer(deque(texts), len(texts)))
    view.set_filter("step 5|boom|slow")


def recover(bars: list[RecoveryBar]) -> None:
    drill = Drill("1", "pod-kill", "demo-worker-x", (1,), T0, 0.0)
    going = Recovery(drill, detected_s=6.6)
    done = Recovery(
        drill, None, 6.6, 7.0, None, 14.2, 18.5, resumed_step=30, last_step=41
    )  # fmt: skip
    bars[0].set_recovery(going, T0 + 11)
    bars[1].set_recovery(done, T0 + 60)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_table(snap_compare: Compare, width: int) -> None:
    table = pods()
    app = Stage(table, then=lambda: fill(table))
    assert snap_compare(app, terminal_size=(width, 12))


def test_a_table_in_sixteen_colours(snap_compare: Compare) -> None:
    table = pods()
    app = Stage(table, theme="ansi-16", then=lambda: fill(table))
    assert snap_compare(app, terminal_size=(80, 12))


@pytest.mark.parametrize("width", WIDTHS)
def test_a_chart(snap_compare: Compare, width: int) -> None:
    chart = LineChart("Loss")
    assert snap_compare(Stage(chart, then=lambda: plot(chart)), terminal_size=(width, 14))


@pytest.mark.parametrize("symbols", [Symbols.BLOCK, Symbols.ASCII])
def test_a_chart_without_braille(snap_compare: Compare, symbols: Symbols) -> None:
    use_symbols(symbols)
    chart = LineChart("Loss")
    app = Stage(chart, theme="high-contrast", then=lambda: plot(chart))
    assert snap_compare(app, terminal_size=(80, 14))


@pytest.mark.parametrize("width", WIDTHS)
def test_a_log_and_a_recovery(snap_compare: Compare, width: int) -> None:
    view, bars = LogView(), [RecoveryBar(), RecoveryBar()]

    def fill_both() -> None:
        scroll(view)
        recover(bars)

    for one in bars:
        one.styles.height = 3
    app = Stage(Vertical(*bars, view), theme="cockpit-light", then=fill_both)
    assert snap_compare(app, terminal_size=(width, 18))
