"""The syntax of a probe, on a command line and in a game day's file alike.

replicas-ready
loss-continuous
throughput >= 80                 percent of before the fault
checkpoint-age <= 120            seconds
prometheus: ray_node_mem_used / 1e9 < 12
command: curl -fsS http://model.example/healthz
"""

from __future__ import annotations

import math
import re
import shlex

from msgspec import Struct

from cockpit.drills.plan.plan import ProbeSpec, When
from cockpit.model.error import UsageError
from cockpit.model.text import one_line

OPERATORS = ("<=", ">=", "==", "<", ">")
_COMPARED = re.compile(
    r"(?P<left>.*?)\s*(?P<operator><=|>=|==|<|>)\s*(?P<limit>[^<>=]+)", re.DOTALL
)
_LAST = re.compile(r"(?P<left>.*)(?P<operator><=|>=|==|<|>)\s*(?P<limit>[^<>=]+)", re.DOTALL)


class ProbeKind(Struct, frozen=True):
    """One row of the table of probes."""

    name: str
    about: str
    example: str
    operator: str = ""
    """The only meaningful operator; empty: there is no limit, or any of OPERATORS."""
    limit: float | None = None
    """When none is given."""
    unit: str = ""
    when: tuple[When, ...] = ("before", "after")
    """When it is evaluated by default."""


KINDS = {
    kind.name: kind
    for kind in (
        ProbeKind(
            "replicas-ready", "every worker group has its desired number of ready pods",
            "replicas-ready",
        ),
        ProbeKind("training", "the run has made a step in the last 15 s", "training"),
        ProbeKind(
            "throughput",
            "samples/s are at least this percentage of those before the fault (default 90)",
            "throughput >= 80", ">=", 90.0, "%",
        ),
        ProbeKind(
            "loss-continuous", "the loss after the recovery is continuous with the loss before",
            "loss-continuous",
        ),
        ProbeKind(
            "checkpoint-age",
            "the newest checkpoint is at most this many seconds old (default 600)",
            "checkpoint-age <= 120", "<=", 600.0, "s",
        ),
        ProbeKind(
            "prometheus", "every series of the PromQL query satisfies the comparison",
            "prometheus: ray_node_mem_used / 1e9 < 12",
        ),
        ProbeKind(
            "command", "the command ends with exit code 0",
            "command: curl -fsS http://model.example/healthz",
        ),
    )
}  # fmt: skip


def probe(text: str, when: tuple[When, ...] = (), name: str = "") -> ProbeSpec:
    """Parse a probe. Raises UsageError that lists what is allowed."""
    typed = text.strip()
    found = re.match(r"[a-z-]+", typed)
    kind = KINDS.get(found[0] if found else "")
    if kind is None:
        raise UsageError(
            f"{one_line(text, 80)!r} is not a probe.", f"Probes: {', '.join(KINDS)}.",
            "For example: throughput >= 80",
        )  # fmt: skip
    rest = typed[len(kind.name) :].strip().removeprefix(":").strip()
    asked = when or kind.when
    if kind.name == "command":
        return _command(kind, rest, asked, name or typed)
    if kind.name == "prometheus":
        return _query(kind, rest, asked, name or typed)
    if not kind.operator:
        if rest:
            raise _wrong(kind, typed, "It takes no limit.")
        return ProbeSpec(kind.name, name, when=asked)
    limit = kind.limit
    if rest:
        split = _COMPARED.fullmatch(rest)
        if split is None or split["left"] or split["operator"] != kind.operator:
            raise _wrong(kind, typed, f"It is compared by {kind.operator}.")
        limit = _number(kind, typed, split["limit"].removesuffix(kind.unit))
    return ProbeSpec(kind.name, name, limit, kind.operator, when=asked)


def name_of(spec: ProbeSpec) -> str:
    """Its name, else its text."""
    if spec.name:
        return spec.name
    limit = "" if spec.limit is None else f" {spec.operator or '>='} {spec.limit:g}"
    return f"{spec.kind}{limit}"


def _query(kind: ProbeKind, rest: str, when: tuple[When, ...], name: str) -> ProbeSpec:
    split = _LAST.fullmatch(rest)
    if split is None or not split["left"].strip():
        raise _wrong(kind, rest, f"A query, one of {' '.join(OPERATORS)} and a number.")
    limit = _number(kind, rest, split["limit"])
    return ProbeSpec(kind.name, name, limit, split["operator"], split["left"].strip(), when)


def _command(kind: ProbeKind, rest: str, when: tuple[When, ...], name: str) -> ProbeSpec:
    try:
        argv = shlex.split(rest)
    except ValueError as error:
        raise _wrong(kind, rest, f"{error}.") from error
    if not argv:
        raise _wrong(kind, rest, "There is no command.")
    return ProbeSpec(kind.name, name, query=rest, when=when)


def _number(kind: ProbeKind, typed: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _wrong(kind, typed, f"{one_line(text.strip(), 40)!r} is not a number.")
    return value


def _wrong(kind: ProbeKind, text: str, why: str) -> UsageError:
    return UsageError(
        f"{one_line(text, 80)!r} is not a valid {kind.name} probe.",
        why,
        f"For example: {kind.example}",
    )
