"""The page of one rank: where it runs, its numbers and its curves."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Grid
from textual.content import Content

from cockpit import format
from cockpit.model.text import one_line
from cockpit.store.run import AttemptView, RankView, RunView
from cockpit.store.selectors import current_run, pod_of_rank
from cockpit.tui.changes.copies import copies
from cockpit.tui.changes.object_yaml import yaml
from cockpit.tui.dialogs.reading import Reading
from cockpit.tui.keys import BY_ID, Key
from cockpit.tui.rows.text import clock
from cockpit.tui.view_state import ShowsLogs, Target, ViewState
from cockpit.tui.views.charts.curves import GPU, PLOTS, RunChart, has_gpus, marks_of, shown_for
from cockpit.tui.views.detail_screen import DetailScreen
from cockpit.tui.views.ranks.columns import RankLine, score_text
from cockpit.tui.views.ranks.page_facts import Fact, groups, section_bar, section_legend, sections
from cockpit.tui.views.ranks.rows import line_of
from cockpit.tui.widgets.few_lines import as_content
from cockpit.tui.widgets.text import Text

_KEYS = (
    Key("back", "escape", "esc", "back", "Back to the ranks"),
    Key("other", "right,n", "← →", "other rank", "Previous rank, next rank"),
    BY_ID["kill"],
    BY_ID["logs"],
    BY_ID["stack"],
    BY_ID["profile"],
    Key(
        "memory",
        "M",
        "M",
        "memory",
        "Profile its memory allocations (asks for how long)",
    ),
    BY_ID["object"],
    BY_ID["save"],
    BY_ID["help"],
    BY_ID["quit"],
)

_LABEL = 10
"""Cells before a group's facts."""
BAR_CELLS = 100
FRAME_LINES = 3
"""Of the screen: the status line, the title's border, the keys."""
CHART_LINES = 6
"""The minimum size of a readable chart."""
SHORT = 30
"""Lines of a screen; a shorter one shows only the newest attempt."""
STRAGGLES = 3.5
"""Scores above it are highlighted (cockpit.insight.detectors.straggler)."""


class RankScreen(DetailScreen):
    NAME = "Rank"
    KEYS = _KEYS
    DEFAULT_CSS = """
    RankScreen #about { height: auto; padding: 0 1; border-top: solid $border-blurred;
        border-title-color: $foreground; border-title-style: bold;
        border-title-background: $surface; }
    RankScreen Grid { grid-size: 3; grid-gutter: 0 1; height: 1fr; }
    RankScreen.-normal Grid, RankScreen.-narrow Grid { grid-size: 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("K", "kill", "Kill the rank's pod"),
        Binding("l", "logs", "The log of its pod"),
        Binding("T", "stack", "What its process is doing now"),
        Binding("F", "profile", "Where its process spends its time"),
        Binding("M", "memory", "What its process allocates"),
        Binding("y", "object", "Everything known about it, as YAML"),
        Binding("right,n", "other(1)", "The next rank"),
        Binding("left,N", "other(-1)", "The rank before"),
    ]

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank

    def compose_page(self) -> ComposeResult:
        yield Text(id="about")
        with Grid():
            for plot in PLOTS:
                yield RunChart(plot)

    def redraw(self, state: ViewState) -> None:
        super().redraw(state)
        run = current_run(state.store)
        rank = run.ranks.get(self.rank) if run else None
        about = self.query_one("#about", Text)
        self.entitle(about, f"Rank {self.rank}")
        if run is None or rank is None:
            about.show(Content.styled("This rank no longer exists.", "$muted"))
            return
        text = _about(state, run, rank, self.size.width - 2, self.size.height)
        about.show(text)
        marks = marks_of(state.store, run)
        for chart in self._charts(state, run, text.plain.count("\n") + 1):
            chart.show_rank(run, rank, marks, state.now_s)

    def _charts(self, state: ViewState, run: RunView, about_lines: int) -> list[RunChart]:
        """Those with data and enough room; the others are hidden."""
        columns = 3 if self.has_class("-wide") else 2
        rows = max(1, (self.size.height - about_lines - FRAME_LINES) // CHART_LINES)
        shown: list[RunChart] = []
        for chart in shown_for(state, run, self.query(RunChart), PLOTS):
            has_data = chart.plot != GPU or has_gpus(run)
            chart.display = has_data and len(shown) < rows * columns
            if chart.display:
                shown.append(chart)
        return shown

    def action_other(self, by: int = 1) -> None:
        """By default the next one, as for a click on the key in the footer."""
        run = current_run(self.cockpit.store)
        ranks = sorted(run.ranks) if run else []
        if self.rank in ranks:
            self.rank = ranks[(ranks.index(self.rank) + by) % len(ranks)]
            self.cockpit.redraw()

    async def action_logs(self) -> None:
        """The rank's log if it can be followed, else its pod's; in the Jobs view, below."""
        run = current_run(self.cockpit.store)
        rank = run.ranks.get(self.rank) if run else None
        pod = pod_of_rank(self.cockpit.store, rank) if rank else None
        below = self.app.screen_stack[0]
        connection = self.cockpit.connection
        source = connection.log_source if connection else None
        own = f"rank:{self.rank}"
        stream = own if source is not None and source(own) is not None else ""
        stream = stream or (f"pod:{pod.name}" if pod else "")
        if not stream or not isinstance(below, ShowsLogs):
            self.notify("This rank has no living pod whose log could be shown.", timeout=4)
            return
        self.dismiss(None)
        await below.show_log(stream)

    def action_object(self) -> None:
        run = current_run(self.cockpit.store)
        rank = run.ranks.get(self.rank) if run else None
        if rank is not None:
            details = {
                "placement": rank.placement,
                "sample": rank.sample,
                "reported": rank.reported,
            }
            more = copies(Target("rank", str(self.rank)), self.cockpit.store.ref)
            self.app.push_screen(Reading(f"rank {self.rank}", yaml(details), more))

    def action_stack(self) -> None:
        from cockpit.tui.views.ranks import stack

        self.cockpit.attempt(stack.show_stack(self.cockpit, self.rank))

    def action_profile(self) -> None:
        from cockpit.tui.views.ranks import stack

        self.cockpit.attempt(stack.show_profile(self.cockpit, self.rank))

    def action_memory(self) -> None:
        from cockpit.tui.views.ranks import stack

        self.cockpit.attempt(stack.show_memory(self.cockpit, self.rank))

    def action_kill(self) -> None:
        from cockpit.tui.changes import drills

        self.cockpit.attempt(drills.kill(self.cockpit, f"rank:{self.rank}"))


def _about(state: ViewState, run: RunView, rank: RankView, width: int, height: int) -> Content:
    line = line_of(state.store, run, rank, state.now_s)
    lines = [_where(line, rank)]
    found = sections(rank.sample) if rank.sample else ()
    if found:
        bar = section_bar(found, min(width - _LABEL, BAR_CELLS))
        lines.append(Content.assemble(_label("Time"), as_content(bar)))
        for legend in section_legend(found, width - _LABEL):
            lines.append(Content.assemble(_label(""), as_content(legend)))
    for name, facts in groups(line, rank):
        lines += _wrapped(name, facts, width, muted=line.is_stale)
    attempts = sorted(run.attempts.items())[-(3 if height > SHORT else 1) :]
    return Content("\n").join([*lines, *(_attempt(rank, n, a) for n, a in attempts)])


def _where(line: RankLine, rank: RankView) -> Content:
    placed = rank.placement
    where = f"  {placed.node_ip}  pid {placed.pid}" if placed else "  it has no process"
    what = "sample" if line.sample is not None else "report"
    text = (
        f"  last {what} {format.age(line.age_s)} ago" if line.age_s is not None else "  no sample"
    )
    parts = [
        Content.styled(line.pod or "no living pod", "bold" if line.pod else "$warning"),
        Content.styled(where, "$muted"),
        Content.styled(text, "$warning" if line.is_stale else "$muted"),
    ]
    if line.straggler is not None:
        style = "$warning" if line.straggler > STRAGGLES else "$muted"
        parts.append(Content.styled(f"  straggler score {score_text(line.straggler)}", style))
    return Content.assemble(*parts)


def _wrapped(name: str, facts: list[Fact], width: int, *, muted: bool) -> list[Content]:
    """A group on as many lines as it takes, its name before the first."""
    lines: list[Content] = []
    line = _label(name)
    for fact in facts:
        style = "$bad bold" if fact.is_bad else "$muted" if muted else "bold"
        pair = Content.assemble(
            Content.styled(f"{fact.name} ", "$muted"), Content.styled(f"{fact.text}   ", style)
        )
        if line.cell_length + pair.cell_length - 3 > width and line.cell_length > _LABEL:
            lines.append(line)
            line = _label("")
        line += pair
    return [*lines, line]


def _attempt(rank: RankView, number: int, attempt: AttemptView) -> Content:
    began = clock(attempt.started_s) if attempt.started_s is not None else format.DASH
    ended = f"ended {clock(attempt.ended_s)}" if attempt.ended_s is not None else "running"
    at = next((p.node_ip for p in attempt.placements if p.rank == rank.rank), format.DASH)
    why = f" · {one_line(attempt.reason)}" if attempt.reason else ""
    return Content.assemble(
        Content.styled(f"attempt {number}  ", "bold"),
        Content.styled(f"on {at}  {began}  {ended}{why}", "$muted"),
    )


def _label(name: str) -> Content:
    return Content.styled(name.ljust(_LABEL), "bold")
