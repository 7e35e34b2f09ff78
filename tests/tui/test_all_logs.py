"""All logs of a run as one view: opened by its key and its command."""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec.structs import replace

from cockpit.logs.merge import text_of
from cockpit.logs.types import Kind, Log, Row
from cockpit.model.event import Event, LogLines, SourceHealth
from cockpit.tui.main.screen import MainScreen
from cockpit.tui.widgets.log.view import LogView
from cockpit.tui.widgets.table.table import LineTable
from tests.tui.conftest import Open, Seen
from tests.tui.simulated import RUN, START_S

RANKS = tuple(Log(Kind.RANK, f"rank {rank}", rank) for rank in range(2))
DRIVER = (Log(Kind.DRIVER, "driver"),)


class AllLogs:
    """A source of 60 rows, one of them the first error."""

    name = f"run:{RUN}"

    async def events(self) -> AsyncIterator[Event]:
        rows = [Row(START_S + n, f"epoch {n} begins", "", RANKS, 2) for n in range(60)]
        rows[5] = Row(START_S + 5, "ValueError: bad batch", "bad", RANKS[:1], first_error=True)
        rows[50] = Row(START_S + 50, "RuntimeError: peer", "bad", RANKS[1:])
        rows[59] = Row(START_S + 59, "job goes on", "", DRIVER)
        lines = tuple(map(text_of, rows))
        yield LogLines(at_s=START_S + 60, source=self.name, stream=self.name, lines=lines)
        yield SourceHealth(at_s=START_S + 60, source=self.name, ok=True)


def with_logs(seen: Seen) -> None:
    connection = seen.app.connection
    assert connection is not None
    seen.app.connection = replace(
        connection, log_source=lambda stream: AllLogs() if stream == AllLogs.name else None
    )


async def test_key_shows_all_logs_of_the_run_in_the_whole_view(cockpit: Open) -> None:
    async with cockpit(size=(120, 30)) as seen:
        with_logs(seen)
        await seen.press("v")
        await seen.sees("All logs of run digits", "11-21 08:00:59.000  driver  job goes on")
        assert "ENTRYPOINT" not in seen.text
        assert "stop job" not in seen.text, "no job is selected"
        await seen.press("y")
        await seen.until(lambda: "Nothing is selected" in seen.toasts)
        await seen.press("e")
        await seen.sees("rank 0  >> FIRST ERROR: ValueError: bad batch")
        await seen.press("/", *"peer", "enter")
        await seen.sees("rank 1  RuntimeError: peer")
        assert "epoch 49" not in seen.text
        await seen.press("escape")
        await seen.sees("ENTRYPOINT", "Log · job:")


async def test_view_knows_its_pane_as_soon_as_the_focus_moves(cockpit: Open) -> None:
    """A busy table reports its focus late: then the filter went to it and not to the log."""
    async with cockpit(size=(120, 30)) as seen:
        await seen.press("5")
        screen = seen.app.screen
        assert isinstance(screen, MainScreen)
        table, log = screen.view.query_one(LineTable), screen.view.query_one(LogView)
        for pane in (table, log, table):
            screen.set_focus(pane)
            assert screen.view.pane is pane
        await screen.ask("/")
        assert screen.view.pane is table, "the prompt is outside of the view"


async def test_key_of_the_jobs_shows_the_jobs_after_all_logs(cockpit: Open) -> None:
    async with cockpit(size=(160, 30)) as seen:
        with_logs(seen)
        for away in ((), ("1",)):
            await seen.press("v", *away, "5")
            await seen.sees("ENTRYPOINT", "Log · job:")
        await seen.press("v")
        await seen.sees("All logs of run digits", "job goes on")
        await seen.press("1")
        await seen.sees(f"log of run {RUN}")


async def test_command_without_a_name_shows_all_logs(cockpit: Open) -> None:
    async with cockpit(size=(80, 24)) as seen:
        with_logs(seen)
        await seen.press(*":logs", "enter")
        await seen.sees("All logs of run digits", "job goes on")
        await seen.press(*":logs demo-head", "enter")
        await seen.sees("Log · pod:demo-head", "ENTRYPOINT")


async def test_where_logs_cannot_be_read_the_view_reports_it(cockpit: Open) -> None:
    async with cockpit(size=(100, 24)) as seen:
        await seen.press("v")
        await seen.sees("All logs of run digits", "not available here")
