"""The page of `:hang`, and of enter on the alert `hang`: the verdict, drawn again every second."""

from __future__ import annotations

from textual.content import Content

from cockpit.insight.hang.text import lines
from cockpit.insight.hang.types import Confidence, Verdict
from cockpit.insight.hang.verdict import verdict
from cockpit.model.text import clean
from cockpit.store.run import RunView
from cockpit.store.selectors import current_run
from cockpit.tui.app_base import AppBase
from cockpit.tui.dialogs.reading import Reading

EVERY_S = 1.0
_STYLES = {Confidence.HIGH: "$bad", Confidence.MEDIUM: "$bad", Confidence.LOW: "$warning"}


class HangPage(Reading):
    def __init__(self) -> None:
        super().__init__("Hang", "")

    def on_mount(self) -> None:
        self._draw()
        self.set_interval(EVERY_S, self._draw)

    def _draw(self) -> None:
        app = self.app
        assert isinstance(app, AppBase)
        state = app.view_state()
        run = current_run(state.store)
        found = verdict(run, state.now_s) if run is not None else None
        self.fill(content(run, found))


def content(run: RunView | None, found: Verdict | None) -> Content:
    """The sentence in color, then the evidence and the stacks."""
    if run is None:
        return Content("No training run.")
    if found is None:
        return Content(f"Run {clean(run.name or run.id)} is {run.state.value}: no rank hangs.")
    sentence, *rest = map(clean, lines(found))
    return Content("\n").join(
        [Content.styled(sentence, f"bold {_STYLES[found.confidence]}"), *map(Content, rest)]
    )
