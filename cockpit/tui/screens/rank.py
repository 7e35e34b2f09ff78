"""One rank's own page: where it runs, its numbers and its curves."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Grid
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from cockpit.store.run import RankView, RunView
from cockpit.store.select import STALE_AFTER_S, age_s, current_run, pod_of_rank
from cockpit.tui import changes, format
from cockpit.tui.app import CockpitApp
from cockpit.tui.frame import KeyBar, StatusLine
from cockpit.tui.keys import BY_ID, Key
from cockpit.tui.look import HEIGHTS, WIDTHS, Look
from cockpit.tui.screens.curves import PLOTS, RunChart, has_gpus, marks_of
from cockpit.tui.sentences import clock

_KEYS = (
    Key("back", "escape", "esc", "back", "Back to the ranks"),
    BY_ID["kill"],
    BY_ID["help"],
    BY_ID["quit"],
)


class RankScreen(Screen[None]):
    DEFAULT_CSS = """
    RankScreen #about { height: auto; padding: 0 1; border-top: solid $border-blurred;
        border-title-color: $foreground; border-title-style: bold;
        border-title-background: $surface; }
    RankScreen Grid { grid-size: 3; grid-gutter: 0 1; height: 1fr; }
    RankScreen.-normal Grid, RankScreen.-narrow Grid { grid-size: 2; }
    """
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "back", "Back"),
        Binding("K", "kill", "Kill the pod under it"),
        Binding("right,n", "other(1)", "The next rank"),
        Binding("left,N", "other(-1)", "The rank before"),
    ]

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank

    @property
    def cockpit(self) -> CockpitApp:
        app = self.app
        assert isinstance(app, CockpitApp)
        return app

    def compose(self) -> ComposeResult:
        yield StatusLine()
        yield Static(id="about")
        with Grid():
            for plot in PLOTS:
                yield RunChart(plot)
        yield KeyBar()

    def on_mount(self) -> None:
        self.call_after_refresh(self.cockpit.redraw)

    def on_resize(self) -> None:
        self.cockpit.redraw()

    def redraw(self, look: Look) -> None:
        self.query_one(StatusLine).draw(look)
        refused = frozenset(key.id for key in _KEYS if self.cockpit.refusal(key.verb))
        self.query_one(KeyBar).draw(_KEYS, refused)
        run = current_run(look.store)
        rank = run.ranks.get(self.rank) if run else None
        about = self.query_one("#about", Static)
        about.border_title = f"Rank {self.rank}"
        if run is None or rank is None:
            about.update(Content.styled("This rank is not there any more.", "$muted"))
            return
        about.update(_about(look, run, rank))
        marks = marks_of(look.store, run)
        self.query_one("#gpu").display = has_gpus(run)
        for chart in self.query(RunChart):
            chart.show_rank(run, rank, marks, look.now_s)

    def action_back(self) -> None:
        self.dismiss(None)

    def action_other(self, by: int) -> None:
        run = current_run(self.cockpit.store)
        ranks = sorted(run.ranks) if run else []
        if self.rank in ranks:
            self.rank = ranks[(ranks.index(self.rank) + by) % len(ranks)]
            self.cockpit.redraw()

    def action_kill(self) -> None:
        self.cockpit.attempt(changes.kill(self.cockpit, f"rank:{self.rank}"))


def _about(look: Look, run: RunView, rank: RankView) -> Content:
    pod = pod_of_rank(look.store, rank)
    sample = rank.sample
    age = age_s(sample.at_s if sample else None, look.now_s)
    stale = age is None or (age > STALE_AFTER_S and not run.state.is_over)
    where = Content.assemble(
        Content.styled(pod.name if pod else "no living pod", "bold" if pod else "$warning"),
        Content.styled(
            f"  {rank.placement.node_ip}  pid {rank.placement.pid}" if rank.placement else "",
            "$muted",
        ),
        Content.styled(
            f"  last sample {format.age(age)} ago" if age is not None else "  no sample"
        ).stylize("$warning" if stale else "$muted"),
    )
    lines = [where]
    if sample is not None:
        pairs = (
            ("step", format.count(sample.step)),
            ("loss", format.number(sample.loss)),
            ("samples/s", format.si(sample.samples_per_s)),
            ("step time", format.duration(sample.step_time_s)),
            ("data wait", format.duration(sample.data_wait_s)),
            ("comm", format.duration(sample.comm_s)),
            ("grad norm", format.number(sample.grad_norm, 3)),
            ("CPU", format.percent(sample.cpu_percent)),
            ("memory", format.bytes_text(sample.memory_bytes)),
            ("steps done", format.count(rank.steps)),
        )
        style = "$muted" if stale else "bold"
        parts = [
            Content.assemble(Content.styled(f"{name} ", "$muted"), Content.styled(value, style))
            for name, value in pairs
        ]
        lines.append(Content("   ").join(parts))
    for number, attempt in sorted(run.attempts.items())[-3:]:
        began = clock(attempt.started_s) if attempt.started_s is not None else format.DASH
        ended = f"ended {clock(attempt.ended_s)}" if attempt.ended_s is not None else "going"
        at = next((p.node_ip for p in attempt.placements if p.rank == rank.rank), format.DASH)
        why = f" · {attempt.reason}" if attempt.reason else ""
        lines.append(
            Content.assemble(
                Content.styled(f"attempt {number}  ", "bold"),
                Content.styled(f"on {at}  {began}  {ended}{why}", "$muted"),
            )
        )
    return Content("\n").join(lines)
