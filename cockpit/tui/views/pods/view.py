"""View 4: pods, details of the selected one, and the events below them."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.content import Content

from cockpit.format import plural
from cockpit.model.cluster import Pod
from cockpit.model.text import one_line
from cockpit.store.store import Store
from cockpit.tui.main.titles import entitle
from cockpit.tui.rows.sort import HEAD_LINES, Order, heading
from cockpit.tui.rows.text import pod_style, waiting
from cockpit.tui.view_state import ViewState
from cockpit.tui.views.pods.event_rows import EVENT_COLUMNS, EventRows, no_events
from cockpit.tui.views.pods.rows import PodRows
from cockpit.tui.views.sorted_view import SortedView
from cockpit.tui.widgets.table.table import LineTable
from cockpit.tui.widgets.text import Text


class PodsView(SortedView):
    NAME = "pods"
    TABLES = ("pods", "events")
    KIND = "pod"
    SCOPED_CSS = False  # it uses the screen's size classes
    DEFAULT_CSS = """
    PodsView LineTable { border-top: solid $border-blurred; border-title-color: $foreground;
        border-title-style: bold; border-title-background: $surface; }
    PodsView LineTable:focus { border-top: solid $border; }
    PodsView #pods { max-height: 60%; }
    PodsView #about { height: auto; max-height: 4; padding: 0 1; background: $panel; }
    PodsView #events { height: 1fr; }
    .-tiny PodsView #pods { max-height: 100%; }
    .-tiny PodsView #events, .-tiny PodsView #about { display: none; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._pod_rows, self._event_rows = PodRows(), EventRows()

    def compose(self) -> ComposeResult:
        yield LineTable((), id="pods", empty=waiting("No pods yet: waiting for the cluster."))
        yield Text(id="about")
        yield LineTable(EVENT_COLUMNS, id="events", empty=no_events(), newest_first=True)

    def redraw(self, state: ViewState) -> None:
        pods, order = self.table(), self.order
        rows = self._pod_rows.rows(state.store, state.now_s, order)
        if self._pod_rows.columns != pods.columns:
            pods.set_columns(self._pod_rows.columns)
        entitle(pods, _heading(state.store, len(rows), order))
        pods.set_sort(order.by, order.down)
        pods.set_rows(rows)
        pods.styles.height = max(5, len(rows)) + HEAD_LINES
        self._set_text(state.store.pods.get(pods.cursor_key or ""))
        self.show_rows(self._event_rows.rows(state.store), "Events", "events")

    def on_line_table_highlighted(self, message: LineTable.Highlighted) -> None:
        if message.table.id == "pods":
            self._set_text(self.cockpit.store.pods.get(message.key))

    def _set_text(self, pod: Pod | None) -> None:
        """In full what the table may have cut: the name, the K8s node, why it does not start."""
        self.query_one("#about", Text).show(_about(pod) if pod else "")


def _heading(store: Store, shown: int, order: Order) -> str:
    if store.pods_complete:
        return heading("Pods", shown, len(store.pods), order)
    # The head is one more than what the groups want.
    wanted = sum(group.desired for group in store.groups.values()) + 1
    of = f"{wanted:,} pods, " if wanted > len(store.pods) else ""
    return f"Pods · {of}{len(store.pods):,} read so far"


def _about(pod: Pod) -> Content:
    facts = [f"group {pod.group}" if pod.group else "", f"on {pod.host}" if pod.host else ""]
    facts += [pod.ip, f"replica {pod.replica}" if pod.replica else ""]
    facts += [plural(pod.gpus, "GPU") if pod.gpus else ""]
    facts += [plural(pod.restarts, "restart") if pod.restarts else ""]
    parts = [
        Content.styled(one_line(pod.name), "bold"),
        Content.styled(
            "".join(f" · {one_line(fact)}" for fact in facts if fact),
            "$muted",
        ),
    ]
    if pod.reason:
        parts.append(
            Content.styled(
                f"  {one_line(pod.reason, 400)}", "$muted" if pod.ready else f"${pod_style(pod)}"
            )
        )
    return Content.assemble(*parts)
