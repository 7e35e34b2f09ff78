"""Names that a shell completes: of the cluster's objects, and of what this machine has."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable

from cockpit.cli.options import connect
from cockpit.cli.options.parser import settled
from cockpit.cli.read import snapshot
from cockpit.cli.read.inspect import NAMES as KINDS_OF_OBJECTS
from cockpit.config import file, paths
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line

ANSWER_S = 3.0
"""A shell waits for the names: a cluster that takes longer has none."""
LOCAL = {"context": "contexts", "cluster": "clusters", "profile": "profiles", "theme": "themes"}
"""Flags of every verb, and what completes them."""
KINDS = {
    ("kill", "target"): ("pods", "ranks"),
    ("logs", "what"): ("jobs", "pods", "ranks"),
    ("why", "what"): ("runs", "jobs"),
    ("hang", "run"): ("runs",),
    ("describe", "object"): ("objects",),
    ("yaml", "object"): ("objects",),
    ("drill", "name"): ("faults",),
    ("drill", "target"): ("targets",),
    ("drill", "group"): ("groups",),
    ("launch", "job"): ("bundled jobs",),
    ("scale", "group"): ("groups",),
    ("scale", "remove"): ("pods",),
    ("exec", "pod"): ("pods",),
    ("stop", "job"): ("jobs",),
    ("delete", "job"): ("jobs",),
    ("resume", "job"): ("jobs",),
    ("stack", "rank"): ("ranks",),
    ("profile", "rank"): ("ranks",),
    ("cordon", "node"): ("kubernetes nodes",),
    ("uncordon", "node"): ("kubernetes nodes",),
    ("watch", "run"): ("runs",),
    ("record", "run"): ("runs",),
    ("replay", "recording"): ("recordings",),
    ("export", "recording"): ("recordings",),
    ("report", "recording"): ("recordings",),
    ("share", "recording"): ("recordings",),
    ("recordings", "name"): ("recordings",),
}
"""By verb and argument, what completes it."""


def names(kinds: Iterable[str], args: argparse.Namespace) -> list[str]:
    """Names of these kinds on the selected cluster.

    Empty when they cannot be read: a shell shows no message in the middle of a command line. The
    command itself reports the reason.
    """
    found: list[str] = []
    for kind in kinds:
        try:
            found += _READERS[kind](args) if kind in _READERS else _listed(kind, args)
        except (CockpitError, OSError):
            continue
    return [one_line(name) for name in found if name]


def _listed(kind: str, args: argparse.Namespace) -> list[str]:
    """What `cockpit KIND` lists."""
    needs = snapshot.SOURCES.get(kind, snapshot.ALL)
    resources = snapshot.KINDS.get(kind, ("pods",))
    with connect.session(_settled(args), sources=needs, kinds=resources) as session:
        connect.wait_for(session, needs[:1], ANSWER_S)
        rows = snapshot.rows_of(kind, session.store, session.clock())
    key = "rank" if kind == "ranks" else "name"
    return [str(row[key]) for row in rows]


def _settled(args: argparse.Namespace) -> argparse.Namespace:
    """The flags that were typed so far, with the environment and the profile."""
    given = {name: value for name, value in vars(args).items() if value not in (None, "")}
    return settled(argparse.Namespace(**given))


def _clusters(args: argparse.Namespace) -> list[str]:
    from cockpit.cli.read import clusters

    args.cluster = None  # it is what is being typed
    found, answers = clusters.listed(_settled(args).where)
    every = [*found, *(one for answer in answers for one in answer.clusters)]
    return [cluster.ref.name for cluster in every]


def _contexts(args: argparse.Namespace) -> list[str]:
    from cockpit.cli.options import kubernetes

    return [context.name for context in kubernetes.config(_settled(args).where).contexts]


def _profiles(args: argparse.Namespace) -> list[str]:
    return [*file.read().profiles]


def _themes(args: argparse.Namespace) -> list[str]:
    from cockpit.config.theme_files import themes

    return [theme.name for theme in themes()]


def _faults(args: argparse.Namespace) -> list[str]:
    """Of `run` and `plan` faults and game days, of `show` and `report` recorded drills."""
    if getattr(args, "what", "") in ("show", "report"):
        from cockpit.recorder.drills import DrillHistory

        return ["last", *(kept.record.id for kept in DrillHistory().all()[0])]
    from cockpit.drills.faults import catalog
    from cockpit.drills.gamedays import file as gamedays

    return [*catalog.NAMES, *gamedays.shipped()]


def _targets(args: argparse.Namespace) -> list[str]:
    ranks = [f"rank:{name}" for name in names(("ranks",), args)]
    groups = [f"group:{name}" for name in names(("groups",), args)]
    return ["random", "head", *names(("pods",), args), *ranks, *groups]


def _objects(args: argparse.Namespace) -> list[str]:
    """`pod/NAME` and the like; the cluster and groups need no request of their own."""
    lists = {"pod": "pods", "group": "groups", "node": "kubernetes nodes"}
    found = [f"{kind}/{name}" for kind in lists for name in names((lists[kind],), args)]
    return ["cluster", *(f"{kind}/" for kind in KINDS_OF_OBJECTS if kind != "cluster"), *found]


def _bundled(args: argparse.Namespace) -> list[str]:
    from cockpit.launch.job import bundled_jobs

    return [job.name for job in bundled_jobs()]


def _recordings(args: argparse.Namespace) -> list[str]:
    from cockpit.recorder.reading.library import Library

    return [one.name for one in Library(paths.state_dir()).list()]


_READERS: dict[str, Callable[[argparse.Namespace], list[str]]] = {
    "clusters": _clusters,
    "contexts": _contexts,
    "profiles": _profiles,
    "themes": _themes,
    "faults": _faults,
    "targets": _targets,
    "objects": _objects,
    "bundled jobs": _bundled,
    "recordings": _recordings,
}
