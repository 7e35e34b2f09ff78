"""The keys, in one table: bindings, footer, help and refusals all read it."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct
from msgspec.structs import replace
from textual.binding import Binding

_VIEWS = (
    ("overview", "Overview", "Over", "1"),
    ("ranks", "Ranks", "Rank", "2"),
    ("charts", "Charts", "Chart", "3"),
    ("pods", "Pods", "Pods", "4"),
    ("jobs", "Jobs", "Jobs", "5"),
    ("drills", "Drills", "Drill", "6"),
    ("trials", "Trials", "Trial", "7"),
    ("alerts", "Alerts", "Alert", "8"),
    ("nodes", "Nodes", "Node", "9"),
    ("fleet", "Fleet", "Fleet", "0"),
    ("runs", "Runs", "Runs", "r"),
    ("serve", "Serve", "Serve", "i"),
)
"""The name, the title, the title on narrow terminals and the key of each view. All ten with their
numbers, the time and one long title fit in 80 cells."""
VIEWS = tuple(name for name, *_ in _VIEWS)
TITLES = {name: title for name, title, _, _ in _VIEWS}
SHORT_TITLES = {name: short for name, _, short, _ in _VIEWS}
NUMBERS = {name: key for name, *_, key in _VIEWS}


class Key(Struct, frozen=True):
    """One key. `id` is what the configuration calls it, and the name of its action."""

    id: str
    keys: str
    """Textual's names, comma-separated."""
    shown: str
    label: str
    """A short label, for the footer."""
    help: str
    views: tuple[str, ...] = VIEWS
    """The views in which it works."""
    verb: str = ""
    """The required capability: a verb of `Backend.capabilities`. Empty: it changes nothing."""
    footer: bool = True

    @property
    def everywhere(self) -> bool:
        """Whether it does the same in every view that shows the cluster, or in all but one."""
        return len(set(ONE_CLUSTER) - set(self.views)) <= 1


_TABLES = ("ranks", "pods", "jobs", "drills", "trials", "alerts", "nodes", "fleet", "runs", "serve")
_GROUPS = ("overview", "pods")
_CHARTS = ("charts",)
ONLY_KUBERNETES = ("cordon", "describe", "exec", "suspend")
"""Verbs that only a cluster in Kubernetes has."""
ONE_CLUSTER = tuple(view for view in VIEWS if view not in ("fleet", "runs"))
"""The views of the cluster on the screen; the other two show all clusters, and the runs of all."""

KEYS: tuple[Key, ...] = (
    Key("open", "", "enter", "open",
        "Open the rank's page, the object, the job's log, the drill, the cluster, the run",
        _TABLES),
    Key("kill", "K", "K", "kill", "Kill the pod, or the pod of the rank (asks)",
        ("overview", "ranks", "pods"), "delete_pod"),
    Key("drill", "D", "D", "drill", "Inject a fault and measure the recovery (asks)",
        ("overview", "ranks", "pods", "drills"), "drill"),
    Key("abort", "X", "X", "abort drill", "Abort the running drill and undo its fault (asks)",
        ONE_CLUSTER, footer=False),
    Key("scale_up", "plus,equals_sign", "+", "scale", "Scale the group up by one (asks)", _GROUPS,
        "scale"),
    Key("scale_down", "minus", "-", "scale", "Scale the group down by one (asks)", _GROUPS, "scale",
        footer=False),
    Key("shell", "x", "x", "shell", "Open a shell in the pod", ("ranks", "pods"), "exec"),
    Key("cordon", "C", "C", "cordon", "Cordon or uncordon the node (asks)", ("nodes",), "cordon"),
    Key("launch", "L", "L", "launch", "Launch a bundled job", ONE_CLUSTER, verb="launch"),
    Key("stop", "S", "S", "stop job", "Stop the selected job (asks)", ("overview", "jobs"),
        "launch"),
    Key("suspend", "U", "U", "suspend", "Suspend or unsuspend the cluster (asks)", ("overview",),
        "suspend"),
    Key("logs", "l", "l", "logs", "Show the log of the job, or of the rank's pod", ONE_CLUSTER),
    Key("all_logs", "v", "v", "all logs", "Show all logs of the run, merged by time", ONE_CLUSTER,
        footer=False),
    Key("object", "y", "y", "object", "Show the object as YAML; then copy it with c, n, m or o",
        ("overview", "ranks", "pods", "jobs", "trials", "nodes", "runs", "serve")),
    Key("describe", "d", "d", "describe", "Describe the object, with its events",
        ("overview", "pods", "jobs", "nodes"), "describe"),
    Key("filter", "slash", "/", "filter", "Filter rows, lines or charts", (*_TABLES, "charts")),
    Key("sort", "s", "s", "sort", "Sort by the next column; R reverses", _TABLES),
    Key("reverse", "R", "R", "reverse", "Reverse the sort order", _TABLES, footer=False),
    Key("previous", "P", "P", "previous", "Show the pod's log before its last restart",
        ("ranks", "pods"), "logs"),
    Key("pane", "o", "o", "other pane", "Focus the next pane of this view",
        ("overview", "ranks", "pods", "jobs", "drills", "serve")),
    Key("heat", "H", "H", "heat map", "Heat map: a strip, the whole view, off", ("ranks",)),
    Key("color", "c", "c", "color", "Color the heat map by the next metric", ("ranks",)),
    Key("stack", "T", "T", "stack", "Show the stack of the rank's process", ("ranks",)),
    Key("profile", "F", "F", "profile",
        "Profile the rank's process as a flame graph (asks for how long)", ("ranks",)),
    Key("chart_full", "enter", "enter", "full", "Show only this chart; esc shows all again",
        _CHARTS),
    Key("cursor_left", "left", "← →", "cursor",
        "Move the cursor, which shows the values of all curves", _CHARTS),
    Key("cursor_right", "right", "→", "cursor", "Move the cursor right", _CHARTS, footer=False),
    Key("zoom_in", "plus,equals_sign,z", "+ -", "zoom", "Zoom in around the cursor", _CHARTS),
    Key("zoom_out", "minus,Z", "-", "wider", "Zoom out around the cursor", _CHARTS, footer=False),
    Key("pan_left", "left_square_bracket,pageup", "[ ]", "move", "Pan half a window earlier",
        _CHARTS),
    Key("pan_right", "right_square_bracket,pagedown", "]", "later", "Pan half a window later",
        _CHARTS, footer=False),
    Key("zoom_all", "f", "f", "all", "Show the whole run", _CHARTS),
    Key("follow", "end,G", "end", "now", "Follow new data, without a cursor", _CHARTS),
    Key("aggregate", "a", "a", "per rank", "One curve for each rank, or one for the run", _CHARTS),
    Key("smooth", "s", "s", "smooth", "Smoothing: 0.6, 0.9, 0.97, off", _CHARTS),
    Key("log_scale", "o", "o", "log", "Logarithmic or linear values", _CHARTS),
    Key("x_axis", "x", "x", "axis", "X axis: time of day, time since the start, step", _CHARTS),
    Key("compare", "c", "c", "compare", "Compare with other runs and recordings", _CHARTS),
    Key("charts_next", "n", "n", "next", "Next page of charts; N the previous one", _CHARTS),
    Key("charts_before", "N", "N", "before", "Previous page of charts", _CHARTS, footer=False),
    Key("chart_next", "down,j", "↓ ↑", "chart", "Next chart, previous chart", _CHARTS,
        footer=False),
    Key("chart_before", "up,k", "↑", "chart", "Previous chart", _CHARTS, footer=False),
    Key("cursor_far_left", "shift+left", "shift ← →", "far", "Move the cursor by ten cells",
        _CHARTS, footer=False),
    Key("cursor_far_right", "shift+right", "shift →", "far", "Move the cursor ten cells right",
        _CHARTS, footer=False),
    Key("cursor_begin", "home,g", "home", "start", "Move the cursor to the left edge", _CHARTS,
        footer=False),
    Key("favorite", "asterisk", "*", "favorite", "Add the cluster to the favorites, or remove it",
        ("fleet",)),
    Key("compare_runs", "c", "c", "compare", "Mark the run, or compare it with the marked one",
        ("runs",)),
    Key("annotate", "a", "a", "tags, note", "Edit the tags and the note of the run", ("runs",)),
    Key("acknowledge", "a", "a", "ack", "Acknowledge the alert (silences the bell)", ("alerts",)),
    Key("snooze", "z", "z", "snooze", "Snooze the alert for 15 minutes", ("alerts",)),
    Key("snooze_long", "Z", "Z", "1 h", "Snooze the alert for an hour", ("alerts",)),
    Key("acknowledge_all", "A", "A", "ack all", "Acknowledge all alerts", ("alerts",)),
    Key("mark", "m", "m", "mark", "Mark this moment in charts and events", footer=False),
    Key("pause", "p", "p", "pause", "Pause the UI; data is still collected"),
    Key("command", "colon", ":", "command", "Type a command"),
    Key("theme", "t", "t", "theme", "Switch to the next theme", footer=False),
    Key("save", "w", "w", "save", "Save the UI as SVG and as text", footer=False),
    Key("help", "question_mark", "?", "help", "Show the keys of this view"),
    Key("quit", "q", "q", "quit",
        "Quit; the cluster and the run continue (a demo's cluster is deleted)"),
)  # fmt: skip

BY_ID = {key.id: key for key in KEYS}
_USED = Counter(name for key in KEYS for name in key.keys.split(",") if name)
SHARED = frozenset(key.id for key in KEYS if any(_USED[name] > 1 for name in key.keys.split(",")))
"""Keys with a different action in another view: each works in its own views only."""

MOVING: tuple[tuple[str, str], ...] = (
    ("1 … 9 0 r i", "open the view with that key"),
    ("tab shift+tab", "next view, previous view"),
    ("↑ ↓ j k", "one row up or down"),
    ("g G home end", "first or last row"),
    ("enter esc", "open, and back"),
    ("ctrl+p", "every command, searchable"),
)


KEYMAP: dict[str, str] = {}
"""The keys that the configuration moves, by the id of the binding; see `cockpit.tui.keymap`."""

OPENS_PROMPT = ("command", "filter")
"""These take precedence: the app runs them before it sends the keys typed after them anywhere."""


def bindings() -> list[Binding]:
    """Of the main screen, as they are without a keymap. Each has an id."""
    views = [
        Binding(NUMBERS[name], f"view('{name}')", TITLES[name], id=f"view_{name}") for name in VIEWS
    ]
    turns = [
        Binding("tab", "turn(1)", "Next view", id="next_view"),
        Binding("shift+tab", "turn(-1)", "View before", id="previous_view"),
        Binding("escape", "back", "Back", id="back"),
    ]
    rest = [
        Binding(key.keys, key.id, key.help, id=key.id, priority=key.id in OPENS_PROMPT)
        for key in KEYS
        if key.keys
    ]
    return views + turns + rest


def keys_of(view: str, *, kubernetes: bool = True) -> tuple[Key, ...]:
    """The keys that do something in this view, those of the view alone first."""
    here = [moved(key) for key in KEYS if view in key.views]
    if not kubernetes:
        here = [key for key in here if key.verb not in ONLY_KUBERNETES]
    return tuple(sorted(here, key=lambda key: key.everywhere))


def shown_key(name: str) -> str:
    """The key of that binding, where the keymap has it: `L` for `launch`."""
    default = "esc" if name == "back" else BY_ID[name].shown
    return KEYMAP.get(name, default).split(",")[0]


def moved(key: Key) -> Key:
    """The key where the keymap has it."""
    there = KEYMAP.get(key.id)
    return key if there is None else replace(key, keys=there, shown=there.replace(",", " "))
