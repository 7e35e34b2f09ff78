"""The stack of a rank's process, and its CPU and memory profiles.

Ray's tools run on the session's loop; the page opens at once and is filled when they respond.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, Static

from cockpit.config import paths
from cockpit.format import in_seconds
from cockpit.model.error import CockpitError
from cockpit.store.selectors import current_run
from cockpit.store.store import Store
from cockpit.tui.app_base import AppBase
from cockpit.tui.changes.changes import allowed
from cockpit.tui.dialogs.dialog import Dialog
from cockpit.tui.dialogs.reading import Reading
from cockpit.tui.main.titles import entitle

if TYPE_CHECKING:
    from cockpit.sources.ray.flamegraph import Profile
    from cockpit.sources.ray.profiling import Process

T = TypeVar("T")

SECONDS = 5
MOST_SECONDS = 60
"""Ray's default of RAY_DASHBOARD_PROFILING_MAX_DURATION_S."""
FUNCTIONS_SHOWN = 25
LEFT_ALONE = "The rank's process was not inspected."


class AskSeconds(Dialog[int | None]):
    """For how long; None when the user cancels."""

    DEFAULT_CSS = """
    AskSeconds > Vertical { width: 60; }
    AskSeconds Static { margin: 1 0; }
    AskSeconds #wrong { color: $error; margin: 0; height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Back")]

    def __init__(self, heading: str, about: str) -> None:
        super().__init__()
        self.heading, self.about = heading, about

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            entitle(box, self.heading)
            box.border_subtitle = "enter starts · esc cancels"
            yield Static(self.about, markup=False)
            yield Input(str(SECONDS), compact=True)
            yield Static(id="wrong", markup=False)

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        text = event.value.strip().removesuffix("s").strip()
        if text.isdecimal() and 1 <= int(text) <= MOST_SECONDS:
            self.dismiss(int(text))
        else:
            self.query_one("#wrong", Static).update(f"Whole seconds, 1 to {MOST_SECONDS}.")

    def action_leave(self) -> None:
        self.dismiss(None)


async def show_stack(app: AppBase, rank: int) -> None:
    """Every thread of the rank's process, as py-spy sees it now."""
    actions = allowed(app, "profile", LEFT_ALONE)
    process = process_of(app.store, rank)
    page = Reading(f"Stack of rank {rank} · {process}", "Running py-spy on its node…")
    text = await _run_tool(app, page, actions.stack(process))
    page.fill(text or "py-spy printed nothing.")


async def show_profile(app: AppBase, rank: int) -> None:
    """Ask for the duration, sample, write the flame graph, and list the top functions."""
    actions = allowed(app, "profile", LEFT_ALONE)
    process = process_of(app.store, rank)
    about = f"py-spy samples {process} 100 times a second. The run continues."
    seconds = await app.push_screen_wait(AskSeconds(f"Profile rank {rank}", about))
    if seconds is None:
        return
    page = Reading(f"Profile of rank {rank} · {process}", f"Sampling for {in_seconds(seconds)} …")
    found = await _run_tool(app, page, actions.cpu_profile(process, seconds))
    file = _write(f"rank-{rank}-{_stamp()}.svg", found.svg)
    page.fill(_summary(found, file))
    app.notify(str(file), title="Flame graph written", timeout=8, markup=False)


async def show_memory(app: AppBase, rank: int) -> None:
    """Ask for the duration, record allocations with memray, and write its page."""
    actions = allowed(app, "profile", LEFT_ALONE)
    process = process_of(app.store, rank)
    about = f"memray traces the allocations of {process}. The run continues, but slower."
    seconds = await app.push_screen_wait(AskSeconds(f"Memory of rank {rank}", about))
    if seconds is None:
        return
    page = Reading(f"Memory of rank {rank} · {process}", f"Tracing for {in_seconds(seconds)} …")
    html = await _run_tool(app, page, actions.memory_profile(process, seconds))
    file = _write(f"rank-{rank}-memory-{_stamp()}.html", html)
    page.fill(f"Flame graph of its allocations, for a browser:\n{file}")
    app.notify(str(file), title="Memory profile written", timeout=8, markup=False)


def process_of(store: Store, rank: int) -> Process:
    """The rank's process in the newest attempt. CockpitError without one."""
    from cockpit.sources.ray.profiling import Process

    run = current_run(store)
    view = run.ranks.get(rank) if run else None
    if run is None or view is None or view.placement is None:
        raise CockpitError(f"Rank {rank} has no process to inspect.")
    if run.state.is_over:
        raise CockpitError(f"Rank {rank} has no process any more: the run is over.")
    placed = view.placement
    return Process(placed.pid, placed.node_ip, placed.node_id)


async def _run_tool(app: AppBase, page: Reading, tool: Coroutine[Any, Any, T]) -> T:
    """Show the page while the tool runs; close it on failure."""
    app.push_screen(page)
    try:
        return await app.submit(tool)
    except CockpitError:
        if page.is_current:
            page.dismiss(None)
        raise


def _summary(found: Profile, file: Path) -> str:
    lines = [f"Flame graph: {file}", ""]
    if not found.samples:
        return "\n".join([*lines, "No samples: the process did nothing on a CPU."])
    lines += [f"{found.samples:,} samples in {in_seconds(found.seconds)}. Percent of them:", ""]
    lines.append("  self  total  function")
    lines += [
        f"{one.self_percent:6.1f} {one.total_percent:6.1f}  {one.name}"
        for one in found.hot[:FUNCTIONS_SHOWN]
    ]
    return "\n".join(lines)


def _write(name: str, data: bytes) -> Path:
    """Here, or in the state directory where nothing can be written here."""
    errors = []
    for folder in (Path.cwd(), paths.state_dir()):
        try:
            paths.make_private(folder)
            (folder / name).write_bytes(data)
        except OSError as error:
            errors.append(str(error))
        else:
            return folder / name
    raise CockpitError(f"{name} could not be written.", "; ".join(errors))


def _stamp() -> str:
    return time.strftime("%Y%m%d-%H%M%S")
