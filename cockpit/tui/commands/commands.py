"""The commands after `:`, with their parsing and completion."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from cockpit.model.cluster import ClusterRef
from cockpit.model.error import UsageError
from cockpit.store.selectors import current_run, pods_in_order
from cockpit.store.store import Store
from cockpit.tui.commands.cluster_name import short_names
from cockpit.tui.keys import VIEWS
from cockpit.tui.views.fleet.rows import clusters, contexts


class Command(Struct, frozen=True):
    name: str
    usage: str
    help: str
    takes: tuple[str, ...] = ()
    """The types of the first arguments, for completion: `pod`, `rank`, `group`, `job`, `theme`,
    `node`, `context`, `namespace`, `cluster`, `filter`, `column`, `fault` and then its target."""

    @property
    def most_arguments(self) -> int | None:
        """The maximum number of arguments, from `usage`; None: any number."""
        is_open = "…" in self.usage or "TEXT" in self.usage
        return None if is_open else len(self.usage.split()) - 1


COMMANDS: tuple[Command, ...] = (
    *(Command(view, view, f"show {view}") for view in VIEWS),
    Command("hang", "hang", "show why the run makes no progress"),
    Command("experiments", "experiments", "list the runs of MLflow, and compare two"),
    Command("rank", "rank N", "a rank's own page", ("rank",)),
    Command("kill", "kill POD|RANK [GRACE]", "kill a pod, GRACE seconds after SIGTERM", ("pod",)),
    Command("drill", "drill [FAULT [TARGET] …]", "inject a fault; see docs/screens.md", ("fault",)),
    Command("abort", "abort", "abort the running drill and undo its fault"),
    Command("scale", "scale GROUP N|+N|-N", "set the number of pods", ("group",)),
    Command("launch", "launch [JOB]", "launch a bundled job"),
    Command("stop", "stop JOB", "stop a job", ("job",)),
    Command("resume", "resume JOB", "submit a job again, from its last checkpoint", ("job",)),
    Command("delete", "delete JOB", "delete a job that has ended", ("job",)),
    Command(
        "cluster", "cluster NAME|-", "open another cluster; - opens the previous one", ("cluster",)
    ),
    Command(
        "favorite",
        "favorite [CLUSTER]",
        "add a cluster to the favorites, or remove it",
        ("cluster",),
    ),
    Command("context", "context NAME", "the clusters of a context", ("context",)),
    Command("namespace", "namespace NAME|all", "the clusters of a namespace", ("namespace",)),
    Command("suspend", "suspend", "delete all pods, keep the cluster"),
    Command("unsuspend", "unsuspend", "create the pods of the cluster again"),
    Command("cordon", "cordon NODE", "keep new pods off a node", ("node",)),
    Command("uncordon", "uncordon NODE", "allow new pods on a node again", ("node",)),
    Command("shell", "shell POD", "a shell in a pod", ("pod",)),
    Command("describe", "describe [POD]", "describe an object, with its events", ("pod",)),
    Command(
        "logs",
        "logs [JOB|POD|RANK]",
        "follow a log; without a name all logs of the run, merged by time",
        ("job", "pod"),
    ),
    Command("filter", "filter [NAME]", "apply a saved filter of this view", ("filter",)),
    Command("keep", "keep NAME", "save the filter of this view under a name"),
    Command("drop", "drop NAME", "delete a saved filter of this view", ("filter",)),
    Command("columns", "columns [KEY …|all]", "choose and order the columns", ("column",)),
    Command("mark", "mark [TEXT]", "mark this moment"),
    Command("theme", "theme [NAME]", "switch the theme", ("theme",)),
    Command("save", "save", "save the UI as SVG and text"),
    Command("pause", "pause", "pause the UI"),
    Command("help", "help", "the keys of this view"),
    Command("quit", "quit", "quit"),
)

_BY_NAME = {command.name: command for command in COMMANDS} | {
    short: next(c for c in COMMANDS if c.name == name)
    for short, name in {
        "q": "quit",
        "q!": "quit",
        "h": "help",
        "w": "save",
        "log": "logs",
        "ctx": "context",
        "ns": "namespace",
        "clusters": "fleet",
        "machines": "nodes",
        "x": "shell",
    }.items()
}


def parse(line: str) -> tuple[Command, tuple[str, ...]]:
    """Parse the command and its arguments. A unique prefix is enough; raises UsageError."""
    terms = line.split()
    if not terms:
        raise UsageError("No command was typed.", todo="Try: help")
    name, rest = terms[0], tuple(terms[1:])
    if (command := _BY_NAME.get(name)) is None:
        found = [command for command in COMMANDS if command.name.startswith(name)]
        if len(found) != 1:
            known = ", ".join(command.name for command in found or COMMANDS)
            raise UsageError(
                f"There is no command {name!r}." if not found else f"{name!r} is ambiguous.",
                f"Commands: {known}.",
            )
        command = found[0]
    return command, rest


class Names(Struct, frozen=True):
    """What a command may name besides the objects of the store."""

    themes: Sequence[str] = ()
    fleet: Store | None = None
    preferred: Sequence[ClusterRef] = ()
    """Favorites and recent clusters, which are completed first."""
    filters: Sequence[str] = ()
    columns: Sequence[str] = ()


def completions(line: str, store: Store, names: Names | None = None) -> list[str]:
    """Complete lines, most likely first; see `matching`."""
    head, _, tail = line.rpartition(" ")
    if not head:
        return matching(tail, [command.name for command in COMMANDS])
    command = _BY_NAME.get(head.split()[0])
    if command is None:
        return []
    kinds: Sequence[str] = command.takes
    if " " in head.strip() and command.takes != ("column",):
        second = command.name == "drill" and head.count(" ") == 1
        kinds = ("target",) if second else ()
    terms = [name for kind in kinds for name in _names(kind, store, names or Names())]
    return [f"{head} {text}" for text in matching(tail, terms)]


def matching(typed: str, names: Sequence[str]) -> list[str]:
    """The names that begin with what was typed; else those that contain it; else its letters."""

    def has_letters(name: str) -> bool:
        rest = iter(name)
        return all(letter in rest for letter in typed)

    return (
        [name for name in names if name.startswith(typed)]
        or [name for name in names if typed in name]
        or [name for name in names if has_letters(name)]
    )


def _names(kind: str, store: Store, names: Names) -> Sequence[str]:
    fleet = names.fleet
    match kind:
        case "pod":
            return [pod.name for pod in pods_in_order(store)]
        case "rank":
            run = current_run(store)
            return [str(rank) for rank in sorted(run.ranks)] if run else []
        case "group":
            return list(store.groups)
        case "job":
            return list(store.jobs)
        case "node":
            return sorted(store.kubernetes_nodes)
        case "fault":
            from cockpit.drills.faults import catalog

            return catalog.NAMES
        case "theme":
            return names.themes
        case "filter":
            return names.filters
        case "column":
            return names.columns
        case "target":
            return _targets(store)
        case "context":
            return contexts(fleet) if fleet else ()
        case "namespace":
            return ["all", *sorted({ref.namespace for ref in clusters(fleet)})]
        case "cluster":
            found = clusters(fleet)
            first = [ref for ref in dict.fromkeys(names.preferred) if ref in found]
            return short_names([*first, *(ref for ref in found if ref not in first)])
    raise KeyError(kind)


def _targets(store: Store) -> list[str]:
    """The targets of a drill."""
    ranks = [f"rank:{rank}" for rank in _names("rank", store, Names())]
    return [*ranks, *_names("pod", store, Names()), "random", "head"]


def seconds(terms: Sequence[str], default: float = 0.0) -> float:
    """A time in seconds, when there is one. Raises UsageError."""
    if not terms:
        return default
    try:
        return max(0.0, float(terms[0].removesuffix("s")))
    except ValueError:
        raise UsageError(f"{terms[0]!r} is not a number of seconds.") from None
