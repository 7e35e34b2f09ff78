"""The page of `:hang`, and of enter on the alert `hang`: the verdict on the run, live."""

from __future__ import annotations

import re
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content

from cockpit.insight.hang.before import changes
from cockpit.insight.hang.text import lines
from cockpit.insight.hang.types import Confidence, Verdict
from cockpit.insight.hang.verdict import verdict
from cockpit.model.text import clean
from cockpit.store.run import RunView
from cockpit.store.selectors import current_run
from cockpit.store.store import Store
from cockpit.tui.keys import BY_ID, Key, shown_key
from cockpit.tui.view_state import ShowsLogs, ViewState
from cockpit.tui.views.detail_screen import DetailScreen
from cockpit.tui.widgets.scrolling import ScrollKeys
from cockpit.tui.widgets.text import Text

_KEYS = (
    Key("back", "escape", "esc", "back", "Back"),
    Key(
        "kill",
        "K",
        "K",
        "kill",
        "Kill the pod of the rank that is the cause (asks)",
        verb="delete_pod",
    ),
    Key("all_logs", "v,l", "v", "all logs", "Show all logs of the run, merged by time"),
    Key("scroll", "j,down", "j k", "scroll", "Scroll by a line; g and G to the ends"),
    BY_ID["save"],
    BY_ID["help"],
    BY_ID["quit"],
)
USER_FRAME = re.compile(r"→ \S+(?: \(\S+\))?")
"""Another stack may be beside it."""
_STYLES = {Confidence.HIGH: "$bad", Confidence.MEDIUM: "$bad", Confidence.LOW: "$warning"}


class HangPage(DetailScreen, ScrollKeys):
    NAME = "Hang"
    KEYS = _KEYS
    DEFAULT_CSS = """
    HangPage > VerticalScroll { height: 1fr; border-top: solid $border-blurred;
        border-title-color: $foreground; border-title-style: bold;
        border-title-background: $surface; background: $surface; padding: 0 1; }
    HangPage Static { height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("K", "kill", "Kill the pod of the cause"),
        Binding("v,l", "all_logs", "All logs of the run"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._causes: tuple[int, ...] = ()

    def compose_page(self) -> ComposeResult:
        with VerticalScroll(can_focus=False):
            yield Text()

    def redraw(self, state: ViewState) -> None:
        super().redraw(state)
        run = current_run(state.store)
        found = verdict(run, state.now_s) if run is not None else None
        self._causes = found.ranks if found is not None else ()
        box = self.query_one(VerticalScroll)
        self.entitle(box, f"Hang · run {run.name or run.id}" if run is not None else "Hang")
        width = box.scrollable_content_region.width
        text = content(state.store, run, found, width, state.now_s)
        box.query_one(Text).show(text)

    def action_kill(self) -> None:
        from cockpit.tui.changes import drills

        if self._causes:
            self.cockpit.attempt(drills.kill(self.cockpit, f"rank:{self._causes[0]}"))
        else:
            self.notify("No rank is known to be the cause.", timeout=4)

    async def action_all_logs(self) -> None:
        below = self.app.screen_stack[0]
        run = current_run(self.cockpit.store)
        if isinstance(below, ShowsLogs):
            self.dismiss(None)
            await below.show_log(f"run:{run.id if run is not None else ''}")


def content(
    store: Store, run: RunView | None, found: Verdict | None, width: int, now_s: float
) -> Content:
    """The sentence in color and headings in bold, in lines of at most `width` cells."""
    if run is None:
        return Content(f"No training run. Press esc, then {shown_key('launch')} to launch a job.")
    if found is None:
        return Content(f"Run {clean(run.name or run.id)} is {run.state.value}: no rank hangs.")
    before = changes(store, run, found)
    page = [clean(line) for line in lines(found, before, max(40, width), now_s)]
    end = page.index("") if "" in page else len(page)
    style = f"bold {_STYLES[found.confidence]}"
    text = [Content.styled(line, style) for line in page[:end]]
    for line in page[end:]:
        is_heading = line.endswith(":") and not line.startswith(" ")
        shown = Content.styled(line, "bold" if is_heading else "")
        text.append(shown.highlight_regex(USER_FRAME, style="$accent"))
    return Content("\n").join(text)
