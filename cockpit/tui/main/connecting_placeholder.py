"""The placeholder of every view until there is a cluster. The first paint shows it."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from cockpit.model.text import one_line
from cockpit.tui.keys import NUMBERS, shown_key
from cockpit.tui.view_state import ViewState
from cockpit.tui.views.view import View


class StartingView(View):
    NAME = "starting"
    DEFAULT_CSS = """
    StartingView { padding: 1 2; overflow-y: auto; }
    StartingView Static { height: auto; }
    """

    def compose(self) -> ComposeResult:
        yield Static(markup=False)

    def redraw(self, state: ViewState) -> None:
        self.query_one(Static).update(starting(state))


def starting(state: ViewState) -> Content:
    """The output of the start so far, or why it failed."""
    parts: list[Content] = []
    if state.connected and not state.chosen and not state.switching:
        return Content.assemble(
            Content.styled("No cluster is chosen yet\n\n", "bold"),
            f"{NUMBERS['fleet']} shows the fleet: every cluster of every context. "
            "enter opens one.\n",
        )
    if state.failure is None:
        where = state.switching or state.cluster
        where = f" {one_line(where)}" if where else ""
        parts.append(Content.styled(f"Starting{where}\n\n", "bold"))
        if not state.progress:
            parts.append(Content.styled("Connecting …\n", "$muted"))
    for number, line in enumerate(state.progress, start=1):
        if state.failure is not None:
            mark = Content.styled("· ", "$muted")  # which step failed is in the message
        elif number == len(state.progress):
            mark = Content.styled("· ", "$warning")
        else:
            mark = Content.styled("✓ ", "$good")
        parts += [mark, Content(f"{one_line(line)}\n")]
    if state.failure is not None:
        error = state.failure
        parts += [
            Content("\n" if state.progress else ""),
            Content.styled(f"{error.what}\n", "bold $bad"),
            Content(f"{error.why}\n" if error.why else ""),
            Content(f"{error.todo}\n" if error.todo else ""),
            Content.styled(
                f"\n{shown_key('quit')} quits with exit code {int(error.code)}", "$muted"
            ),
        ]
    return Content.assemble(*parts)
