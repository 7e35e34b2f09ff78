"""Names that a shell completes: of the cluster's objects, and of what this machine has."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Iterable, Sequence

from cockpit.cli.options import connect
from cockpit.cli.options.parser import settled
from cockpit.cli.output import lists
from cockpit.cli.read import snapshot
from cockpit.cli.read.inspect import NAMES as KINDS_OF_OBJECTS
from cockpit.config import file, paths
from cockpit.model.error import CockpitError
from cockpit.model.text import one_line

ANSWER_S = 3.0
"""A shell waits for the names: a cluster that takes longer has none."""
LOCAL = {
    "context": "contexts",
    "namespace": "namespaces",
    "cluster": "clusters",
    "profile": "profiles",
    "theme": "themes",
}
"""Flags of every verb, and what completes them."""
KINDS = {
    ("kill", "target"): ("pods", "ranks"),
    ("logs", "what"): ("jobs", "pods", "ranks"),
    ("why", "what"): ("runs", "jobs", "objects"),
    ("hang", "run"): ("runs",),
    ("describe", "object"): ("objects",),
    ("yaml", "object"): ("objects",),
    ("drill", "name"): ("faults",),
    ("drill", "target"): ("targets",),
    ("drill", "group"): ("groups",),
    ("drill", "set"): ("settings",),
    ("experiments", "runs"): ("tracked runs", "recordings"),
    ("guard", "run"): ("runs",),
    ("launch", "job"): ("bundled jobs",),
    ("launch", "set"): ("settings",),
    ("local", "name"): ("local clusters",),
    ("manifests", "name"): ("manifests",),
    ("preflight", "group"): ("groups",),
    ("preflight", "job"): ("bundled jobs",),
    ("preflight", "set"): ("settings",),
    ("scale", "group"): ("groups",),
    ("scale", "remove"): ("pods",),
    ("exec", "pod"): ("pods",),
    ("stop", "job"): ("jobs",),
    ("delete", "job"): ("jobs",),
    ("resume", "job"): ("jobs",),
    ("stack", "rank"): ("ranks",),
    ("profile", "rank"): ("ranks",),
    ("timeline", "job"): ("jobs", "runs"),
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
OBJECTS = {
    "pod": "pods",
    "group": "groups",
    "node": "kubernetes nodes",
    "job": "rayjobs",
    "rayjob": "rayjobs",
}
"""The kinds of KIND/NAME that have names, and what lists them."""


def names(kinds: Iterable[str], args: argparse.Namespace) -> list[str]:
    """Names of these kinds on the selected cluster.

    Empty when they cannot be read: a shell shows no message in the middle of a command line. The
    command itself reports the reason. `args.typed` is the argument as far as it is typed.
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
    key = {"ranks": "rank", "rayjobs": "rayjob"}.get(kind, "name")
    needs = snapshot.SOURCES.get(kind, snapshot.ALL)
    if kind == "rayjobs":
        kind, needs = "jobs", ("backend",)
    resources = snapshot.KINDS.get(kind, ("pods",))
    with connect.session(_settled(args), sources=needs, kinds=resources) as session:
        connect.wait_for(session, needs[:1], ANSWER_S)
        rows = lists.rows_of(kind, session.store, session.clock())
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


def _local_clusters(args: argparse.Namespace) -> list[str]:
    from cockpit.cli.read import clusters

    return [cluster.ref.name for cluster in clusters.local_clusters()]


def _namespaces(args: argparse.Namespace) -> list[str]:
    """Of the contexts, and those with a RayCluster."""
    from cockpit.cli.options import kubernetes
    from cockpit.cli.read import clusters

    args.namespace = args.cluster = None  # the first is being typed, the second is within it
    where = _settled(args).where
    configured = kubernetes.config(where)
    contexts = [configured.context(where.context)] if where.context else configured.contexts
    _, answers = clusters.listed(where)
    live = [one.ref.namespace for answer in answers for one in answer.clusters]
    return [*(context.namespace for context in contexts), *live]


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
    """First the kinds, which need no request; after the slash the names of this kind."""
    from cockpit.cli.read.why_waiting import KINDS as KINDS_THAT_WAIT

    kinds = KINDS_THAT_WAIT if args.verb == "why" else KINDS_OF_OBJECTS
    kind, slash, _ = args.typed.partition("/")
    if slash:
        lists = (OBJECTS[kind],) if kind in kinds and kind in OBJECTS else ()
        return [f"{kind}/{name}" for name in names(lists, args)]
    return ["cluster", *(f"{kind}/" for kind in kinds if kind != "cluster")]


def _settings(args: argparse.Namespace) -> list[str]:
    """`KEY=` of the job or fault on the line; after the equals sign the choices."""
    from cockpit.drills.faults import catalog
    from cockpit.drills.faults.fault import Parameter
    from cockpit.launch.job import JobSetting, bundled_job

    found: Sequence[JobSetting | Parameter] = (
        catalog.fault(args.name).parameters
        if args.verb == "drill"
        else bundled_job(args.job or "").settings
    )
    key, equals, _ = args.typed.partition("=")
    if not equals:
        return [f"{one.name}=" for one in found]
    chosen = [one for one in found if one.name == key.replace("-", "_")]
    return [
        f"{key}={choice}"
        for one in chosen
        for choice in one.choices or (("true", "false") if isinstance(one.default, bool) else ())
    ]


def _bundled(args: argparse.Namespace) -> list[str]:
    from cockpit.launch.job import bundled_jobs

    return [job.name for job in bundled_jobs()]


def _tracked_runs(args: argparse.Namespace) -> list[str]:
    from cockpit.cli.options import mlflow

    async def read() -> list[str]:
        client = mlflow.client()
        try:
            async with asyncio.timeout(ANSWER_S):
                found = await client.runs(await client.experiments(), 0.0)
        finally:
            await client.aclose()
        return [one.run.name or one.run.id for one in found]

    return asyncio.run(read())


def _recordings(args: argparse.Namespace) -> list[str]:
    from cockpit.recorder.reading.library import Library

    return [one.name for one in Library(paths.state_dir()).list()]


def _manifests(args: argparse.Namespace) -> list[str]:
    from cockpit.cli.cluster import manifests

    return manifests.names()


_READERS: dict[str, Callable[[argparse.Namespace], list[str]]] = {
    "clusters": _clusters,
    "contexts": _contexts,
    "namespaces": _namespaces,
    "local clusters": _local_clusters,
    "profiles": _profiles,
    "themes": _themes,
    "faults": _faults,
    "targets": _targets,
    "objects": _objects,
    "bundled jobs": _bundled,
    "settings": _settings,
    "tracked runs": _tracked_runs,
    "recordings": _recordings,
    "manifests": _manifests,
}
