from __future__ import annotations

from pathlib import Path

import pytest
from textual import events

from cockpit.model.event import JobsListed, LogLines, SourceHealth
from cockpit.model.run import Job, JobStatus
from cockpit.tui.widgets.table.table import LineTable
from tests.tui.conftest import Open, Seen
from tests.tui.simulated import JOB, START_S, digits, wide


def read_all(folder: Path) -> dict[str, str]:
    return {path.suffix: path.read_text() for path in folder.glob("cockpit-*.*")}


async def test_numbers_and_tab_move_between_views(cockpit: Open) -> None:
    async with cockpit() as seen:
        for key, text in (
            ("2", "SAMPLES/S"),
            ("3", "marks: checkpoint C"),
            ("4", "REASON"),
            ("5", "ENTRYPOINT"),
            ("7", "No Tune trials yet"),
            ("8", "No alerts"),
            ("1", "Cluster"),
        ):
            await seen.press(key)
            await seen.sees(text)
        await seen.press("tab")
        await seen.sees("SAMPLES/S")
        await seen.press("shift+tab", "shift+tab")
        await seen.sees("Runs · 1, 1 live")
        await seen.press("shift+tab")
        await seen.sees("Ray nodes · 3")
        await seen.press("shift+tab")
        await seen.sees("No alerts")


async def test_a_command_typed_in_one_burst_is_read_whole(cockpit: Open) -> None:
    """The keys of a paste, or of a busy machine, wait in the app's queue all at once."""
    async with cockpit() as seen:
        names = {":": "colon", " ": "space", "/": "slash", "\r": "enter"}
        for character in ":theme /x/:y\r":
            seen.app.post_message(events.Key(names.get(character, character), character))
        await seen.until(lambda: "/x/:y" in seen.toasts)


async def test_overview_explains_how_run_and_cluster_are(cockpit: Open) -> None:
    async with cockpit(at_s=60) as seen:
        await seen.sees("● ready", "workers", "RUNNING", "attempt 1", "2 ranks", "samples/s")
        await seen.advance(84)
        await seen.sees("RESCHEDULING", "Worker group is unhealthy")


async def test_a_rank_that_stops_reporting_turns_stale_with_its_age(cockpit: Open) -> None:
    async with cockpit(at_s=60) as seen:
        await seen.press("2")
        table = seen.app.screen.query_one("#ranks", LineTable)
        assert "stale" not in seen.text
        seen.simulation.mute = {"telemetry"}
        await seen.advance(72)
        await seen.sees("2 stale", "12 s", "telemetry 12 s old")
        assert {row.cells[2] for row in table.rows} == {("12 s", "warning")}


async def test_a_source_that_fails_is_named_with_the_reason(cockpit: Open) -> None:
    async with cockpit(at_s=60, size=(120, 40)) as seen:
        broken = SourceHealth(at_s=START_S + 60, source="ray", ok=False, error="connection refused")
        seen.simulation.session.dispatch(broken)
        seen.simulation.mute = {"ray"}
        await seen.advance(75)
        await seen.sees("ray 15 s old", "connection refused")


async def test_a_filter_leaves_only_what_holds_it_and_escape_lifts_it(cockpit: Open) -> None:
    async with cockpit(at_s=110) as seen:
        await seen.press("4", "slash", *"head")
        await seen.sees("Pods · 1 of 3 with “head”")
        await seen.press("enter")
        assert "demo-workers-1 " not in seen.text.split("Events")[0]
        await seen.press("escape")
        await seen.sees("Pods · 3")


async def test_sorting_goes_by_the_next_column_and_can_be_reversed(cockpit: Open) -> None:
    async with cockpit(at_s=60, size=(160, 30)) as seen:
        await seen.press("2", "s")
        table = seen.app.screen.query_one("#ranks", LineTable)
        assert (table.sort_key, [row.key for row in table.rows]) == ("rank", ["0", "1"])
        await seen.press("R")
        assert [row.key for row in table.rows] == ["1", "0"]


async def test_a_dying_pod_stays_in_sight_with_its_reason(cockpit: Open) -> None:
    async with cockpit(at_s=82, size=(120, 30)) as seen:
        await seen.press("4")
        await seen.sees("Failed", "killed by signal 9", "Pending", "raylet is starting")


async def test_the_log_follows_its_job(cockpit: Open) -> None:
    async with cockpit(at_s=60) as seen:
        await seen.press("5")
        await seen.sees(f"job:{JOB}", "60 INFO train")
        seen.simulation.session.dispatch(
            LogLines(at_s=START_S + 60, source="logs", stream=f"job:{JOB}", lines=("the newest",))
        )
        seen.app.tick()
        await seen.sees("the newest")


async def test_a_paused_screen_stands_still_while_data_comes_in(cockpit: Open) -> None:
    async with cockpit(at_s=60) as seen:
        await seen.press("2")
        await seen.sees("880")
        await seen.press("p")
        await seen.advance(70)
        await seen.sees("PAUSED")
        assert "1,080" not in table_text(seen)
        assert "880" in table_text(seen)
        await seen.press("p")
        await seen.until(lambda: "1,080" in table_text(seen))


def table_text(seen: Seen) -> str:
    """The content of the table of ranks."""
    table = seen.app.screen.query_one("#ranks", LineTable)
    return " ".join(cell[0] for row in table.rows for cell in row.cells)


async def test_enter_opens_a_rank_and_escape_goes_back(cockpit: Open) -> None:
    async with cockpit(at_s=110, size=(120, 40)) as seen:
        await seen.press("2", "j", "enter")
        await seen.sees("Rank 1", "demo-workers-3", "attempt 1", "rank 1 died")
        await seen.press("escape")
        await seen.sees("SAMPLES/S")


async def test_an_object_is_shown_as_yaml(cockpit: Open) -> None:
    async with cockpit() as seen:
        await seen.press("4", "y")
        await seen.sees("pod demo-head", "node_type: head", 'ip: "10.0.0.10"')


async def test_help_lists_the_keys_of_the_view(cockpit: Open) -> None:
    async with cockpit(size=(100, 60)) as seen:
        await seen.press("3", "question_mark")
        await seen.sees("Keys · Charts", "One curve for each rank", ":kill POD|RANK [GRACE]")


async def test_help_is_laid_out_for_the_terminal_that_there_is(cockpit: Open) -> None:
    async with cockpit(size=(120, 60)) as seen:
        await seen.press("2", "question_mark")
        await seen.sees("as a flame graph (asks for how long)")
        await seen.pilot.resize_terminal(80, 60)
        await seen.until(lambda: "as a flame graph (asks for how long)" not in seen.text)
        lines = seen.text.splitlines()
        at = next(n for n, line in enumerate(lines) if "Profile the rank's" in line)
        assert lines[at + 1].index(lines[at + 1].split()[1]) == lines[at].index("Profile the")


async def test_an_unknown_command_reports_what_there_is(cockpit: Open) -> None:
    async with cockpit() as seen:
        await seen.press("colon", *"frobnicate", "enter")
        await seen.until(lambda: "There is no command 'frobnicate'." in seen.toasts)
        await seen.press("colon", *"pods", "enter")
        await seen.sees("REASON")


async def test_a_mark_is_an_event_and_theme_and_screen_can_be_kept(
    cockpit: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with cockpit() as seen:
        await seen.press("m")
        seen.app.tick()
        await seen.sees("mark 1")
        before = seen.app.theme
        await seen.press("t", "w")
        assert seen.app.theme != before
    saved = read_all(tmp_path)
    assert "Overview" in saved[".txt"]
    assert saved[".svg"].startswith("<svg")


async def test_any_size_is_survived(cockpit: Open) -> None:
    async with cockpit(at_s=90, size=(200, 50)) as seen:
        for view in "12345":
            await seen.press(view)
            for size in ((20, 5), (80, 24), (1, 1), (300, 100), (40, 10), (200, 50)):
                await seen.pilot.resize_terminal(*size)
                await seen.advance(seen.simulation.now_s - START_S + 0.5)
        await seen.press("1")
        await seen.sees("Cluster", "digits")


async def test_a_thousand_ranks_are_shown(cockpit: Open) -> None:
    async with cockpit(simulation=wide(1000, until_s=20), at_s=20, size=(200, 50)) as seen:
        await seen.press("2")
        await seen.sees("1,000 ranks", "GPU MEM", "POWER")
        await seen.press("G")
        await seen.sees("999")


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
async def test_a_job_that_has_no_run_yet_is_named(cockpit: Open, size: tuple[int, int]) -> None:
    simulation = digits()
    started_s = START_S - 30.0
    job = Job("digits-x", "python x.py", JobStatus.RUNNING, started_s=started_s)
    simulation.session.dispatch(JobsListed(at_s=START_S - 5, source="ray", jobs=(job,)))
    async with cockpit(simulation=simulation, at_s=-5, size=size) as seen:
        await seen.sees("Job digits-x is RUNNING for 25 s.", "for its logs.", "No samples yet")


async def test_nothing_known_yet_reports_what_is_waited_for(cockpit: Open) -> None:
    async with cockpit(simulation=digits(), at_s=-5, size=(120, 30)) as seen:
        await seen.sees("Connecting, no data yet", "No run yet")
        await seen.press("2")
        await seen.sees("No run yet. Press L to launch a job.")
        await seen.press("4")
        await seen.sees("No pods yet")
        await seen.press("5")
        await seen.sees("No jobs yet")


async def test_the_palette_offers_views_and_keys(cockpit: Open) -> None:
    async with cockpit(at_s=60) as seen:
        await seen.press("ctrl+p", *"pods")
        await seen.sees("Show the view Pods")
        await seen.press("enter")
        await seen.sees("Pods · 3")


async def test_the_palette_offers_each_action_once(cockpit: Open) -> None:
    async with cockpit(at_s=60) as seen:
        found = [entry.title for entry in seen.app.get_system_commands(seen.app.screen)]
        assert {"Save (w)", "Quit (q)", "Help (?)", "Theme"} <= set(found)
        assert not {"Screenshot", "Quit", "Keys", "Theme (t)"} & set(found)
        await seen.press("ctrl+p")
        await seen.sees("Search for commands")
        assert "🔎" not in seen.text, "an emoji has another width in some terminals"


async def test_click_on_a_header_sorts_and_a_second_one_reverses(cockpit: Open) -> None:
    async with cockpit(at_s=60) as seen:
        await seen.press("4")
        table = seen.app.screen.query_one("#pods", LineTable)
        names = [row.key for row in table.rows]
        x = seen.text.splitlines()[3].index("POD")
        for expected, reverse in ((names, False), (names[::-1], True), (names, False)):
            await seen.pilot.click(table, offset=(x, 1))
            assert (table.sort_key, table.reverse) == ("pod", reverse)
            assert [row.key for row in table.rows] == expected
        await seen.pilot.click(table, offset=(x, 3))
        assert table.cursor_key == names[1]


async def test_tabs_and_keys_can_be_clicked(cockpit: Open) -> None:
    async with cockpit(at_s=60) as seen:
        await seen.pilot.click("Tabs", offset=(seen.text.index("4 Pods"), 0))
        await seen.sees("Pods · 3")
        await seen.pilot.click("KeyBar", offset=(seen.text.splitlines()[-1].index("? help"), 0))
        await seen.sees("Keys · Pods")
