"""Lines of the view of drills: for a running drill, and for the selected row."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from cockpit.drills.faults.fault import Fault
from cockpit.model.text import one_line
from cockpit.tui.views.drills.catalog_rows import Day, parameters_text
from cockpit.tui.widgets.few_lines import FewLines, StyledLine, cut


class StyledLines(FewLines):
    """As high as what it shows."""

    DEFAULT_CSS = """
    StyledLines { height: auto; width: 100%; background: $surface; color: $foreground; }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._uncut: list[StyledLine] = []

    def show(self, lines: Sequence[StyledLine]) -> None:
        """These lines; longer ones are cut with an ellipsis."""
        self._uncut = list(lines)
        if self.styles.height is None or self.styles.height.value != len(self._uncut):
            self.styles.height = len(self._uncut)
        self.display = bool(self._uncut)
        self.draw_again()

    def draw_lines(self) -> list[StyledLine]:
        return [cut(line, self.size.width) for line in self._uncut]


def about(kind: Fault, why: str) -> Content:
    """A fault: why it is unavailable, its requirements and its parameters."""
    facts = [
        ("needs", ", ".join(kind.needs)),
        ("end of the fault", kind.ending),
        ("parameters", parameters_text(kind.parameters)),
    ]
    pairs = [
        Content.assemble(Content.styled(f"{name} ", "$muted"), f"{text}   ")
        for name, text in facts
        if text
    ]
    head = Content.assemble(Content.styled(f"{kind.name}  ", "bold"), kind.summary)
    return Content("\n").join([head, *_not_here(why), Content.assemble(*pairs)])


def of_day(day: Day, why: str = "") -> Content:
    """A game day: what it is for, why it cannot be held, and its steps."""
    steps = " → ".join(one_line(step, 60) for step in day.steps)
    head = Content.assemble(Content.styled(f"{day.name}  ", "bold"), one_line(day.about, 300))
    return Content("\n").join([head, *_not_here(why), Content.styled(steps, "$muted")])


def _not_here(why: str) -> list[Content]:
    return [Content.styled(f"Not available here: {one_line(why, 300)}", "$warning")] if why else []
