"""The order of a drill as text: the fields of the dialog, and a typed line. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from cockpit.drills.faults.catalog import fault as fault_named
from cockpit.drills.faults.fault import parameter_values
from cockpit.drills.plan.plan import (
    DrillPlan,
    FaultSpec,
    ProbeSpec,
    TargetSpec,
    checked_blast_radius,
)
from cockpit.drills.probes import hypothesis
from cockpit.model.error import UsageError
from cockpit.model.text import one_line
from cockpit.tui.views.drills.catalog_rows import default_text

PRESETS: Mapping[str, str] = {
    "none": "",
    "steady": "replicas-ready; throughput >= 80",
    "strict": "replicas-ready; throughput >= 95; loss-continuous; checkpoint-age <= 600",
}
"""Hypotheses to begin with, by name."""
USAGE = (
    "drill FAULT [TARGET] [--set KEY=VALUE] [--count N] [--seed N] [--within S] [--lost N] "
    "[--max-share X] [--max-pods N]"
)


class DrillForm(Struct, frozen=True):
    """The fields as typed; empty is the default."""

    fault: str
    values: Mapping[str, str] = field(default_factory=dict)
    target: str = "random"
    count: str = "1"
    seed: str = ""
    within: str = ""
    lost: str = ""
    hypothesis: str = ""
    """Probes, with semicolons between."""
    share: str = ""
    pods: str = ""
    """Limits of the blast radius."""


def plan(form: DrillForm) -> DrillPlan:
    """Raise UsageError for an invalid form."""
    kind = fault_named(form.fault)
    defaults = {one.name: default_text(one) for one in kind.parameters}
    given = {
        name: text
        for name, text in form.values.items()
        if text.strip() and text.strip() != defaults.get(name)
    }
    parameter_values(kind, given)
    count = _whole("the number of targets", form.count, least=1)
    within = _number("the seconds to the first new step", form.within)
    return DrillPlan(
        name=kind.name,
        faults=(
            FaultSpec(kind.name, given, TargetSpec(form.target.strip() or "random", count or 1)),
        ),
        hypothesis=probes(form.hypothesis),
        recover_within_s=within,
        max_steps_lost=_whole("the steps lost", form.lost),
        seed=_whole("the seed", form.seed),
        blast_radius=checked_blast_radius(
            _whole("the maximum number of pods", form.pods),
            _number("the maximum share of a group's pods", form.share),
        ),
    )


def probes(text: str) -> tuple[ProbeSpec, ...]:
    """Raises UsageError."""
    return tuple(hypothesis.probe(part) for part in text.split(";") if part.strip())


def typed(terms: Sequence[str]) -> DrillForm:
    """`rank-kill rank:1 --set grace_s=5 --seed 7`. Raises UsageError."""
    form = DrillForm(terms[0] if terms else "")
    given: dict[str, str] = {}
    hypothesis: list[str] = []
    rest = list(terms[1:])
    target_is_named = False
    while rest:
        label = rest.pop(0)
        if not label.startswith("--"):
            if target_is_named:
                raise _wrong(f"{one_line(label)!r} is one argument too many.")
            form, target_is_named = replace(form, target=label), True
            continue
        flag, separator, value = label.partition("=")
        if not separator or flag == "--set":
            if flag != label or not rest:
                raise _wrong(f"{one_line(label)} needs a value.")
            value = rest.pop(0)
        match flag:
            case "--set":
                name, separator, text = value.partition("=")
                if not separator:
                    raise _wrong(f"{one_line(value)!r} is not KEY=VALUE.")
                given[name] = text
            case "--probe":
                hypothesis.append(value)
            case "--count" | "--seed" | "--within" | "--lost" | "--max-share" | "--max-pods":
                form = replace(form, **{flag.removeprefix("--").removeprefix("max-"): value})
            case _:
                raise _wrong(f"There is no {one_line(flag)}.")
    return replace(form, values=given, hypothesis="; ".join(hypothesis))


def _wrong(what: str) -> UsageError:
    return UsageError(what, f"Usage: {USAGE}")


def _number(what: str, text: str, least: int = 0) -> float | None:
    text = text.strip().removesuffix("s").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not least <= value < float("inf"):
        wrong = "too small" if 0 <= value < least else "not a number"
        raise UsageError(f"{one_line(text, 40)!r} is {wrong}.", f"Enter {what}: {least} or more.")
    return value


def _whole(what: str, text: str, least: int = 0) -> int | None:
    value = _number(what, text, least)
    if value is not None and value != int(value):
        raise UsageError(
            f"{one_line(text, 40)!r} is not a whole number.", f"Enter {what} as a whole number."
        )
    return None if value is None else int(value)
