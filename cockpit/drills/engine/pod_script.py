"""Run scripts inside pods, which act on processes, files and networks.

The scripts are `cockpit.drills.pod_scripts` and `cockpit.preflight.pod_scripts`: Python modules
that use only the standard library, for Python 3.9 or newer. They are sent as text with each call,
after the text of the modules that they import; nothing is installed. A script prints what it did;
on a failure it prints one line on standard error and exits with 1, or with 3 if a permission is
missing. A lasting effect is ended after its duration by a background process that the script
starts, even if cockpit has ended.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files

from msgspec.structs import replace

from cockpit.backends.protocol import Backend, ExecResult
from cockpit.drills.faults.fault import DrillContext, Order, Prepared, Undo
from cockpit.model.error import CockpitError, NotAllowedError, UnreachableError
from cockpit.model.text import one_line

PYTHON = "python"
NOT_ALLOWED = 3


_FUTURE = "from __future__ import annotations\n"
_NEIGHBOUR = re.compile(
    r"^from cockpit\.(\w+)\.pod_scripts\.([\w.]+) import (?:\([^)]*\)|.*)\n", re.MULTILINE
)
DRILLS = "drills"


@cache
def source(script: str, package: str = DRILLS) -> str:
    """The text of `PACKAGE/pod_scripts/SCRIPT.py`, after that of the scripts it imports from."""
    parts: dict[tuple[str, str], str] = {}

    def add(package: str, name: str) -> None:
        path = "/".join(("pod_scripts", *name.split("."))) + ".py"
        text = (files(f"cockpit.{package}") / path).read_text(encoding="utf-8")
        for neighbour in _NEIGHBOUR.findall(text):
            if neighbour not in parts:
                add(*neighbour)
        parts[package, name] = _NEIGHBOUR.sub("", text).replace(_FUTURE, "")

    add(package, script)
    return _FUTURE + "".join(parts.values())


def argv(script: str, *arguments: str, package: str = DRILLS) -> tuple[str, ...]:
    """The command line to run in the pod."""
    return (PYTHON, "-c", source(script, package), *arguments)


def undo(text: str, pod: str, script: str, *arguments: str, anywhere: bool = False) -> Undo:
    """An undo that runs a script in the pod."""
    return Undo("exec", text, pod=pod, argv=argv(script, *arguments), anywhere=anywhere)


REFUSE = "refuse"
"""The last argument of an undo after which the same fault may not begin any more."""


def refusing(undo: Undo) -> Undo:
    """As above; with it the script also refuses to begin the fault later."""
    return replace(undo, argv=(*undo.argv, REFUSE))


async def run(
    backend: Backend, pod: str, script: str, *arguments: str, what: str = "", uid: str = ""
) -> str:
    """Return the script's output, stripped. Raises CockpitError, or NotAllowedError.

    `what` is the failed operation, for the message. `uid` as for `Backend.exec`.
    """
    done = await backend.exec(pod, argv(script, *arguments), uid=uid)
    if done.exit_code == 0:
        return done.stdout.strip()
    kind = NotAllowedError if done.exit_code == NOT_ALLOWED else CockpitError
    raise kind(
        what or f"{' '.join((script, *arguments[:1]))} failed in pod {pod}.", last_line(done)
    )


def last_line(done: ExecResult) -> str:
    """The reason of the failure: the last line of its standard error, else its exit code."""
    said = done.stderr.strip().splitlines()
    return (one_line(said[-1]) if said else "") or f"It ended with code {done.exit_code}."


async def run_in_each(
    backend: Backend, calls: Iterable[tuple[str, ...]], uids: Mapping[str, str]
) -> None:
    """Run a script in several pods concurrently, each as `pod, script, *arguments`.

    `uids` by pod, as for `Backend.exec`. Raises an error after all have ended. Errors that leave
    unknown whether the script has begun take precedence.
    """
    started = (run(backend, *call, uid=uids.get(call[0], "")) for call in calls)
    ran = await asyncio.gather(*started, return_exceptions=True)
    failed = [result for result in ran if isinstance(result, BaseException)]
    for error in sorted(failed, key=lambda error: has_answered(error)):
        raise error


def prepared(
    context: DrillContext,
    order: Order,
    lines: Iterable[str],
    calls: Iterable[tuple[str, ...]],
    undo: Iterable[Undo] = (),
    for_s: float = 0.0,
) -> Prepared:
    """Return the fault that these calls of `run_in_each` begin, and that lasts for `for_s`."""
    listed = tuple(calls)
    return Prepared(
        lines=tuple(lines),
        apply=lambda: run_in_each(context.backend, listed, order.uids),
        undo=tuple(undo),
        lasts_s=for_s,
        parameters=order.used,
    )


def has_answered(error: BaseException) -> bool:
    """Whether the error is from the pod or the API, rather than from a lost connection."""
    return isinstance(error, CockpitError) and not isinstance(error, UnreachableError)
