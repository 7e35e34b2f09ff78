"""What stands in the place of every view until there is a cluster. The first paint is of it."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from cockpit.model.text import one_line
from cockpit.tui.view_state import Look
from cockpit.tui.views.view import View


class StartingView(View):
    NAME = "starting"
    DEFAULT_CSS = """
    StartingView { padding: 1 2; overflow-y: auto; }
    StartingView Static { height: auto; }
    """

    def compose(self) -> ComposeResult:
        yield Static(markup=False)

    def redraw(self, look: Look) -> None:
        self.query_one(Static).update(starting(look))


def starting(look: Look) -> Content:
    """What the start has said so far, or why it failed."""
    parts: list[Content] = []
    if look.connected and not look.chosen and not look.switching:
        return Content.assemble(
            Content.styled("No cluster is chosen yet\n\n", "bold"),
            "0 shows the fleet: every cluster of every context. enter there looks at one.\n",
        )
    if look.failure is None:
        where = look.switching or look.cluster
        where = f" {one_line(where)}" if where else ""
        parts.append(Content.styled(f"Starting{where}\n\n", "bold"))
        if not look.progress:
            parts.append(Content.styled("Connecting …\n", "$muted"))
    for number, line in enumerate(look.progress, start=1):
        last = number == len(look.progress) and look.failure is None
        mark = Content.styled("· " if last else "✓ ", "$warning" if last else "$good")
        parts += [mark, Content(f"{one_line(line)}\n")]
    if look.failure is not None:
        error = look.failure
        parts += [
            Content("\n" if look.progress else ""),
            Content.styled(f"{error.what}\n", "bold $bad"),
            Content(f"{error.why}\n" if error.why else ""),
            Content(f"{error.todo}\n" if error.todo else ""),
            Content.styled(f"\nq quits with exit code {int(error.code)}", "$muted"),
        ]
    return Content.assemble(*parts)
