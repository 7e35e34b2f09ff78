"""The sources in one line: the state of each, and the age of its last update."""

from __future__ import annotations

from textual.content import Content

from cockpit import format
from cockpit.store.selectors import STALE_AFTER_S, age_s
from cockpit.store.store import SourceState
from cockpit.tui.view_state import ViewState

ORDER = ("backend", "ray", "telemetry", "train", "failures", "prometheus", "mlflow")
"""Sources that are always listed, first; others, such as a followed log, come after."""


def sources_line(view_state: ViewState, width: int) -> Content:
    """As many as fit without a cut; then the number of the others."""
    states = view_state.store.sources
    names = [name for name in ORDER if name in states]
    names += sorted(name for name in states if name not in ORDER)
    line = Content.styled(" Sources ", "$muted")
    for at, name in enumerate(names):
        piece = _piece(states[name], view_state.now_s)
        rest = f"  +{len(names) - at}"
        last = at == len(names) - 1
        if line.cell_length + piece.cell_length + (0 if last else len(rest)) > width:
            return Content.assemble(line, Content.styled(rest, "$muted"))
        line = Content.assemble(line, piece)
    return line


def _piece(state: SourceState, now_s: float) -> Content:
    if state.absent:
        return Content.styled(f"  {_shown(state.name)} {format.DASH}", "$muted 60%")
    age = age_s(state.ok_s, now_s)
    overdue_s = age_s(max(state.ok_s or 0.0, state.retry_at_s or 0.0), now_s)
    if not state.ok:
        text, style = "failed" if age is None else f"failed, {format.age(age)} old", "$bad"
    elif overdue_s is None or overdue_s > STALE_AFTER_S:
        text, style = f"{format.age(age)} old", "$warning"
    else:
        text, style = format.age(age), "$good"
    return Content.assemble(
        Content.styled(f"  {_shown(state.name)} ", "$muted"), Content.styled(text, style)
    )


def _shown(name: str) -> str:
    """The name; a followed log is `log of job NAME`."""
    kind, colon, of = name.partition(":")
    if not colon:
        return name
    kind = {"previous": "pod before its restart"}.get(kind, kind)
    return f"log of {kind} {of}" if of else f"log of the newest {kind}"
