"""The frame of every view: the names of the views, the state of the cluster, the keys."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.content import Content
from textual.geometry import Region
from textual.widget import Widget

from cockpit import format
from cockpit.insight.metrics.progress import is_going
from cockpit.insight.metrics.stall import stall
from cockpit.store.selectors import current_run
from cockpit.tui.app_base import AppBase, Conducting
from cockpit.tui.keys import NUMBERS, SHORT_TITLES, TITLES, VIEWS, Key, shown_key
from cockpit.tui.rows.text import (
    HEALTH_STYLES,
    clock,
    cluster_name,
    run_status,
    run_style,
    stale_source_rows,
)
from cockpit.tui.view_state import ViewState
from cockpit.tui.widgets.few_lines import StyledLine, markup

_SEPARATOR = Content.styled(" │ ", "$muted")


class Line(Widget):
    """One line; only the cells that have changed are drawn again."""

    DEFAULT_CSS = """
    Line { height: 1; width: 100%; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._content = Content()
        self._clicks: list[tuple[int, int, str]] = []

    def show(self, content: Content, clicks: Sequence[tuple[int, int, str]] = ()) -> None:
        """`clicks`: cell ranges [from, to) with the action of a click."""
        self._clicks = list(clicks)
        before, self._content = self._content, content
        if not content.is_same(before):
            self.refresh(Region(*_changed_cells(before, content, self.size.width), 1))

    def render(self) -> Content:
        return self._content

    async def on_click(self, event: events.Click) -> None:
        for start, end, action in self._clicks:
            if start <= event.x < end:
                await self.run_action(action)


def _changed_cells(before: Content, after: Content, width: int) -> tuple[int, int, int]:
    """The position (x, y) and the number of the cells in which two lines differ."""
    old, new = _styled_characters(before), _styled_characters(after)
    first = _count_same(old, new)
    last = 0
    if before.cell_length == after.cell_length:
        last = _count_same(old[first:][::-1], new[first:][::-1])
    # The last cell is an ellipsis while the line is too long.
    x = max(0, min(after[:first].cell_length, width - 1))
    end = after.cell_length - after[len(new) - last :].cell_length if last else width
    return x, 0, max(0, end - x)


def _styled_characters(content: Content) -> list[tuple[str, tuple[str, ...]]]:
    styles: list[tuple[str, ...]] = [()] * len(content.plain)
    for start, end, style in content.spans:
        for i in range(start, min(end, len(styles))):
            styles[i] += (str(style),)
    return list(zip(content.plain, styles, strict=True))


def _count_same(one: Sequence[object], other: Sequence[object]) -> int:
    """How many elements at the beginning are the same in both."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


class Tabs(Line):
    """The product's name, the views, and the time."""

    DEFAULT_CSS = """
    Tabs { background: $panel; }
    """

    def draw(self, state: ViewState, view: str) -> None:
        right = Content.styled(f"{clock(state.now_s)} ", "$muted")
        minute = right[:5]  # without its seconds
        mode = Content()
        if state.paused:
            mode = Content.styled(" PAUSED ", "reverse $warning")
            right = Content.assemble(mode, " ", right)
        if state.read_only:
            mode = Content.assemble(Content.styled("read-only ", "$muted"), mode)
            right = Content.assemble(Content.styled("read-only ", "$muted"), " ", right)
        width = self.size.width
        names = views_of(state)
        few = [name for name in names if name == view or _is_kept(name, state)]
        for brand, labels, end in (
            (" cockpit ", _labels(view, names, gap=" "), right),
            (" ", _labels(view, names, gap=" "), right),
            ("", _labels(view, names), right),
            ("", _labels(view, few), right),
            ("", _short_labels(view, names), right),
            *([] if mode else [("", _short_labels(view, names), minute)]),
            ("", _short_labels(view, few), right),
            ("", _short_labels("", few), mode),
            (" ", _labels(view, few, gap=" ", long=False), right),
        ):
            needed = len(brand) + sum(len(text) for _, text in labels) + end.cell_length
            if needed + (end.cell_length and not labels[-1][1].endswith(" ")) <= width:
                right = end
                break
        parts: list[Content] = [Content.styled(brand, "$accent bold")]
        clicks, x = [], parts[0].cell_length
        for name, label in labels:
            style = "$foreground on $primary 40% bold" if name == view else "$muted"
            parts.append(Content.styled(label, style))
            clicks.append((x, x + len(label), f"screen.view('{name}')"))
            x += len(label)
        self.show(_spread(Content.assemble(*parts), right, width), clicks)


def _is_kept(name: str, state: ViewState) -> bool:
    """Whether the view is named on narrow terminals, too."""
    return NUMBERS[name].isdecimal() and (name != "nodes" or state.lists_nodes)


def views_of(state: ViewState) -> tuple[str, ...]:
    """The views that have something to show: nodes, a fleet on Kubernetes, Serve if it runs."""
    there = {
        "nodes": state.lists_nodes or bool(state.store.kubernetes_nodes or state.store.nodes),
        "fleet": state.fleet is not None,
        "serve": bool(state.store.deployments),
    }
    return tuple(name for name in VIEWS if there.get(name, True))


def _labels(
    view: str, names: Sequence[str], *, gap: str = "", long: bool = True
) -> list[tuple[str, str]]:
    """Each with its title, or only its number; the shown view always has its title."""
    titles = {name: f"{TITLES[name]}{gap}" if long or name == view else "" for name in names}
    return [(name, f" {NUMBERS[name]} {title}") for name, title in titles.items()]


def _short_labels(view: str, names: Sequence[str]) -> list[tuple[str, str]]:
    """Each with a short title; the shown view with its long one."""
    titles = {name: (TITLES if name == view else SHORT_TITLES)[name] for name in names}
    return [(name, f" {NUMBERS[name]}{title}") for name, title in titles.items()]


class StatusLine(Line):
    """The cluster, the run, and stale sources."""

    DEFAULT_CSS = """
    StatusLine { background: $surface; }
    """

    def draw(self, state: ViewState) -> None:
        where = state.cluster or "no cluster"
        if state.ref is not None:
            where = cluster_name(state.ref, max(12, int(0.45 * self.size.width)))
        # A label as well as a colour, which not everyone sees.
        protected = Content.styled(" PROTECTED ", "bold reverse $warning")
        parts: list[Content | str] = [Content.styled(f" {where} ", "bold")]
        if state.protected:
            parts += [protected, " "]
        store = state.store
        if state.failure is not None:
            parts.append(Content.styled("● failed", "$bad"))
        elif state.switching:
            parts.append(Content.styled(f"● connecting to {state.switching}", "$warning"))
        elif state.connected and not state.chosen:
            parts = [Content.styled(" No cluster is chosen yet", "bold")]
        elif not state.connected:
            parts.append(Content.styled("● starting", "$warning"))
        else:
            style = f"${HEALTH_STYLES[store.health]}"
            message = store.health.value if store.ref else "connecting, no data yet"
            parts.append(Content.styled(f"● {message}", style))
        more: list[str] = []
        if (run := current_run(store)) is not None:
            attempt = f" · attempt {run.attempt.number}" if run.attempt else ""
            parts += [
                _SEPARATOR,
                Content.styled(run.name or run.id, "bold"),
                " ",
                Content.styled(run_status(run), f"${run_style(run)}"),
            ]
            if is_going(run) and stall(run, state.now_s) is not None:
                parts.append(Content.styled(" STALLED", "bold $bad"))
            more = [attempt, f" · step {run.step:,}" if run.step else ""]
        stale = stale_source_rows(state)
        if stale:
            text = "  ".join(
                f"{name} {format.age(age)} old" if age is not None else f"{name} no data"
                for name, age, _ in stale
            )
            right = Content.styled(f"⚠ {text} ", "$warning")
        else:
            right = Content()
        left, width = Content.assemble(*parts), self.size.width
        for part in more:  # whole, or not at all
            if left.cell_length + len(part) + right.cell_length < width:
                left = Content.assemble(left, part)
        if not stale:
            right = Content.styled(f"{state.route} " if state.route else "", "$muted")
            if left.cell_length + right.cell_length > width:
                right = Content()
        self.show(_spread(left, right, width))


class DrillLine(Line):
    """The running drill, in every view except its own; no line without one."""

    DEFAULT_CSS = """
    DrillLine { background: $warning 12%; display: none; }
    """

    @property
    def conducting(self) -> Conducting | None:
        app = self.app
        return app.conducting if isinstance(app, AppBase) else None

    def draw(self, state: ViewState, view: str = "") -> None:
        found: StyledLine | None = None
        if state.store.drilling:  # imported where it is needed: most screens never show a drill
            from cockpit.tui.views.drills import current_drill

            if (going := current_drill.going(state.store)) is not None:
                found = current_drill.line(current_drill.live(state.store, going), state.now_s)
        if found is None and (mine := self.conducting) is not None and mine.message:
            found = [(f"{mine.name}  ", "bold"), (mine.message, "muted")]
        found = None if view == "drills" else found
        self.display = found is not None
        if found is not None:
            parts = [Content.styled(text, markup(style)) for text, style in found]
            left = Content.assemble(Content.styled(" drill ", "bold $warning"), *parts)
            right = Content.styled(f"{shown_key('abort')} aborts ", "$muted")
            self.show(_spread(left, right, self.size.width or self.app.size.width))


class KeyBar(Line):
    """The active keys; those without permission are dim. They can be clicked."""

    DEFAULT_CSS = """
    KeyBar { background: $panel; }
    """

    def draw(self, keys: tuple[Key, ...], refused: frozenset[str]) -> None:
        """`refused`: the ids of keys whose action would be refused."""
        always = [key for key in keys if key.id in ("help", "quit")]
        tail = [_key(key, False) for key in always]
        width = self.size.width
        room = width - 1 - sum(piece.cell_length for piece in tail)
        head, clicks, x = [Content(" ")], [], 1
        for key in keys:
            if not key.footer or key in always:
                continue
            piece = _key(key, key.id in refused)
            if x + piece.cell_length > room:
                break
            head.append(piece)
            clicks.append((x, x + piece.cell_length, f"screen.{key.id}"))
            x += piece.cell_length
        x = width
        for key, piece in zip(reversed(always), reversed(tail), strict=True):
            x -= piece.cell_length
            clicks.append((x, x + piece.cell_length, f"screen.{key.id}"))
        self.show(_spread(Content.assemble(*head), Content.assemble(*tail), width), clicks)


def _key(key: Key, dim: bool) -> Content:
    if dim:
        return Content.styled(f"{key.shown} {key.label}  ", "$muted 50%")
    return Content.assemble(
        Content.styled(key.shown, "$accent bold"), " ", Content.styled(f"{key.label}  ", "$muted")
    )


def _spread(left: Content, right: Content, width: int) -> Content:
    """The left and right ends of a line, with a space between; the right one is cut last."""
    room = max(0, width - right.cell_length)
    apart = not right.plain or left.plain.endswith(" ") or right.plain.startswith(" ")
    if left.cell_length > room or (left.cell_length == room and not apart):
        left = left.truncate(max(0, room - 1), ellipsis=True)
    gap = max(0, width - left.cell_length - right.cell_length)
    return Content.assemble(left, " " * gap, right)
