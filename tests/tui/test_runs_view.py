"""The view of all runs: recordings and live runs, filter, tags, notes, and two compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from cockpit.config import paths
from cockpit.model.event import Event, JobsListed, RunSeen
from cockpit.model.run import RunState
from cockpit.recorder.reading import annotation
from cockpit.recorder.reading.library import Library
from cockpit.store.store import Store
from cockpit.tui.dialogs.reading import Reading
from cockpit.tui.rows.fields import chosen
from cockpit.tui.rows.sort import Order
from cockpit.tui.views.runs.rows import MARKS, RunLine, fields, is_marked, run_lines, text_of
from cockpit.tui.widgets.table.table import LineTable
from tests.recorder.test_recorder import record, script
from tests.tui.conftest import Open
from tests.tui.simulated import RUN, START_S


def renamed(events: list[Event], run_id: str, name: str) -> list[Event]:
    """The same run with another name, id and flag, and with its end."""
    found: list[Event] = []
    for event in events:
        if isinstance(event, JobsListed):
            jobs = tuple(
                replace(job, entrypoint=f"{job.entrypoint} --lr 0.2") for job in event.jobs
            )
            found.append(replace(event, jobs=jobs))
        elif hasattr(event, "run_id"):
            changed = replace(event, run_id=run_id)
            found.append(replace(changed, name=name) if isinstance(event, RunSeen) else changed)
        else:
            found.append(event)
    end = next(event for event in reversed(found) if isinstance(event, RunSeen))
    at_s = found[-1].at_s + 1
    return [*found, replace(end, at_s=at_s, state=RunState.ERRORED)]


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    """The recordings of two runs that have ended."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    library = Library(paths.state_dir())
    for name, until_s in (("baseline", 60.0), ("wide", 40.0)):
        events = renamed(script(until_s, None), f"id-{name}", name)
        record(library.path_of(f"id-{name}"), events)
    annotation.write(library.path_of("id-wide"), annotation.parsed("#sweep-3 lr was too high"))
    return library


def lines_of(library: Library, store: Store | None = None) -> list[RunLine]:
    return run_lines(store or Store(), library.list(), START_S + 100)


def names(lines: list[RunLine], order: Order) -> list[str]:
    shown, problem = chosen(lines, fields(), order, text=text_of, marks=MARKS, is_marked=is_marked)
    return [problem, *(line.summary.name for line in shown)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["", "baseline", "wide"]),
        ("tag~sweep", ["", "wide"]),
        ("too high", ["", "wide"]),
        ("state=errored time>40", ["", "baseline"]),
        ("live", [""]),
        ("cluster=local:demo recorded", ["", "baseline", "wide"]),
        ("lr<1", ["there is no column lr"]),
    ],
)
def test_recorded_runs_are_filtered(library: Library, text: str, expected: list[str]) -> None:
    found = names(lines_of(library), Order(text=text))
    if expected[0]:
        assert found[0].startswith(expected[0])
    else:
        assert found == expected


def test_runs_are_sorted_by_value_with_unknown_last(library: Library) -> None:
    lines = lines_of(library)
    lines.append(RunLine(replace(lines[0].summary, name="new", loss=None), START_S))
    by_loss = names(lines, Order(by="loss"))[1:]
    losses = {line.summary.name: line.summary.loss for line in lines}
    assert by_loss[-1] == "new"
    assert (losses[by_loss[0]] or 0) <= (losses[by_loss[1]] or 0)


async def test_live_run_is_first_and_recordings_of_all_clusters_follow(
    cockpit: Open, library: Library
) -> None:
    for size in ((80, 24), (200, 50)):
        async with cockpit(size=size) as seen:
            await seen.press("r")
            await seen.sees("Runs · 3, 1 live", "baseline", "wide", "sweep-3")
            lines = seen.text.split("\n")
            rows = [line for line in lines if "RUNNING" in line or "ERRORED" in line][1:]
            assert "digits" in rows[0]
            if size[0] > 100:
                assert "local:demo" in rows[1]
                assert "lr was too high" in seen.text
                assert "not recorded" in rows[0]


async def test_run_that_is_being_recorded_has_one_row(cockpit: Open, library: Library) -> None:
    record(library.path_of(RUN), script(60.0, None))
    async with cockpit(size=(200, 50)) as seen:
        await seen.press("r")
        await seen.sees("Runs · 3", "left before its end")
        assert "not recorded" not in seen.text


async def test_tags_and_note_are_stored_beside_the_recording(
    cockpit: Open, library: Library
) -> None:
    async with cockpit(size=(200, 50)) as seen:
        await seen.press("r")
        await seen.sees("sweep-3")
        await seen.press("a")
        await seen.until(lambda: "this run is not recorded" in seen.toasts)
        await seen.press("j", "a")
        await seen.press(*"#good first", "enter")
        await seen.sees("good", "first")
        assert annotation.read(library.path_of("id-baseline")) == annotation.parsed("#good first")
        await seen.press("a", *" bad#", "enter")
        assert annotation.read(library.path_of("id-baseline")).note == "first bad#"
        await seen.press("a", *" #(x)", "enter")
        await seen.until(lambda: "cannot be a tag" in seen.toasts)


async def test_note_is_stored_with_the_run_for_which_it_was_asked(
    cockpit: Open, library: Library
) -> None:
    baseline, wide = library.path_of("id-baseline"), library.path_of("id-wide")
    before = annotation.read(wide)
    async with cockpit(size=(200, 50)) as seen:
        await seen.press("r")
        await seen.sees("sweep-3")
        await seen.press("j", "a", *"#good")
        # As when the row of the run leaves a filtered table.
        assert seen.app.screen.query_one("#runs", LineTable).move_to(str(wide))
        await seen.press("enter")
        await seen.sees("good")
        assert annotation.read(baseline) == annotation.parsed("#good")
        assert annotation.read(wide) == before


async def test_two_runs_are_compared_by_settings_and_metrics(
    cockpit: Open, library: Library
) -> None:
    async with cockpit(size=(120, 40)) as seen:
        await seen.press("r")
        await seen.sees("baseline", "wide")
        await seen.press("c")
        await seen.until(lambda: "Marked. Select another run" in seen.toasts)
        await seen.press("j", "j", "c")
        await seen.until(lambda: isinstance(seen.app.screen, Reading))
        await seen.sees("Two runs", "lr", "0.2", "steps", "Parameters: ")
        await seen.press("escape", "enter")
        await seen.sees("cockpit replay id-wide", "lr was too high")


async def test_recordings_are_shown_without_a_cluster(cockpit: Open, library: Library) -> None:
    async with cockpit(chosen=False) as seen:
        await seen.press(*":runs", "enter")
        await seen.sees("Runs · 2", "baseline", "wide")


def test_notes_of_another_machine_are_cleaned(library: Library) -> None:
    path = library.path_of("id-wide")
    notes = annotation.path_of(path)
    notes.write_text('{"tags": ["ok"], "note": "a\\u001b[31mred\\nline"}')
    assert annotation.read(path) == annotation.Annotation(("ok",), "ared line")
    for text in ('{"tags": ["\\u001b]0;x"]}', "{", '{"tags": "ok"}', '{"note": 7}'):
        notes.write_text(text)
        assert "cannot be read" in annotation.read(path).note
    row = next(one for one in library.list() if one.path == path)
    assert row.summary.name == "wide", "the recording itself is read"


def test_notes_are_deleted_with_the_recording(library: Library) -> None:
    path = library.path_of("id-wide")
    assert annotation.path_of(path).exists()
    library.delete(path)
    assert not annotation.path_of(path).exists()
