"""The page of one drill: its phases, the source of each milestone, its cost, and earlier drills."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content

from cockpit.insight.recovery.measurement import is_settled, recovery
from cockpit.model.drill import DrillRecord, Recovery
from cockpit.model.text import one_line
from cockpit.tui.keys import BY_ID, Key
from cockpit.tui.view_state import ViewState
from cockpit.tui.views.detail_screen import DetailScreen
from cockpit.tui.views.drills import page_rows
from cockpit.tui.views.drills.current_drill import VERDICT_STYLES
from cockpit.tui.views.drills.history_rows import Past
from cockpit.tui.widgets.bars.recovery import RecoveryBar
from cockpit.tui.widgets.few_lines import as_content
from cockpit.tui.widgets.scrolling import ScrollKeys
from cockpit.tui.widgets.text import Text

_KEYS = (
    Key("back", "escape", "esc", "back", "Back to the drills"),
    BY_ID["save"],
    BY_ID["help"],
    BY_ID["quit"],
)
EARLIER_SHOWN = 5


class DrillScreen(DetailScreen, ScrollKeys):
    """For a completed drill, or a kill from a key that is still being measured."""

    NAME = "Drill"
    KEYS = _KEYS
    DEFAULT_CSS = """
    DrillScreen VerticalScroll { border-top: solid $border-blurred; padding: 0 1;
        border-title-color: $foreground; border-title-style: bold;
        border-title-background: $surface; background: $surface; }
    DrillScreen Static { height: auto; }
    DrillScreen .head { margin: 1 0 0 0; }
    DrillScreen RecoveryBar { margin: 0 0 1 0; }
    DrillScreen .earlier { height: 1; margin: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "back", "Back"),
    ]

    def __init__(self, past: Past) -> None:
        super().__init__()
        self.past = past
        self.earlier = [one for one in reversed(past.earlier) if one.recoveries][:EARLIER_SHOWN]

    def compose_page(self) -> ComposeResult:
        with VerticalScroll():
            yield Text(id="verdict")
            for number in range(len(self.past.recoveries)):
                yield Text(id=f"title-{number}", classes="head")
                yield RecoveryBar(legend_lines=3, id=f"bar-{number}")
                yield Text(id=f"about-{number}")
            yield Text(id="story", classes="head")
            yield Text(id="compared", classes="head")
            for number in range(len(self.earlier)):
                yield Text(id=f"when-{number}")
                yield RecoveryBar(id=f"earlier-{number}", classes="earlier")

    def redraw(self, state: ViewState) -> None:
        super().redraw(state)
        past = self.past
        self.entitle(self.query_one(VerticalScroll), f"Drill · {past.name} · {past.key}")
        record = past.record
        if record is not None:
            style = f"bold ${VERDICT_STYLES[record.verdict]}"
            text = Content.assemble(
                Content.styled(record.verdict.value, style), f"  {one_line(record.why, 300)}"
            )
        else:
            text = Content.styled("A kill: measured, without a hypothesis.", "$muted")
        self._set_text("verdict", text)
        longest_s = max((r.first_step_s or 0.0 for r in past.recoveries), default=0.0)
        scale_s = longest_s if len(past.recoveries) > 1 and longest_s else None
        for number, kept in enumerate(past.recoveries):
            self._recovery(number, kept, state, scale_s)
        self._set_text("story", as_content(*page_rows.notes_and_stages(past)))
        self._set_text("compared", as_content(*page_rows.beside(past)))
        self._earlier(state)

    def _recovery(
        self, number: int, kept: Recovery, state: ViewState, scale_s: float | None
    ) -> None:
        """One fault of it; what was killed by hand may still be on its way back."""
        going = False
        if self.past.record is None:
            kept = recovery(state.store, kept.drill)
            going = not is_settled(state.store, kept)
        self._set_text(f"title-{number}", as_content(page_rows.title(kept)))
        bar = self.query_one(f"#bar-{number}", RecoveryBar)
        bar.set_recovery(kept, state.now_s, scale_s, going=going)
        bar.styles.height = bar.lines_for(max(1, self.size.width - 4))
        about = as_content(*page_rows.timeline(kept), [("", "")], *page_rows.cost(kept))
        self._set_text(f"about-{number}", about)

    def _earlier(self, state: ViewState) -> None:
        """On one scale, so that longer is slower."""
        took = [self.past.first_step_s, *(_took(one) for one in self.earlier)]
        scale_s = max((one for one in took if one is not None), default=None)
        for number, one in enumerate(self.earlier):
            slowest = max(one.recoveries, key=lambda r: r.first_step_s or 0.0)
            self._set_text(f"when-{number}", as_content(page_rows.title(slowest)))
            bar = self.query_one(f"#earlier-{number}", RecoveryBar)
            bar.display = _took(one) is not None
            bar.set_recovery(slowest, state.now_s, scale_s, going=False)

    def _set_text(self, where: str, content: Content) -> None:
        place = self.query_one(f"#{where}", Text)
        place.display = bool(content.plain)
        place.show(content)


def _took(record: DrillRecord) -> float | None:
    took = [r.first_step_s for r in record.recoveries if r.first_step_s is not None]
    return max(took, default=None)
