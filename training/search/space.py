"""The settings that a search samples, as text: `learning_rate=log(1e-4,1e-1)
batch_size=choice(8,16)`.

    choice(A,B,…)   one of these
    uniform(A,B)    between these
    log(A,B)        the same of the logarithm: as often in 1e-4 to 1e-3 as in 1e-3 to 1e-2

A whole number is sampled as one, including both ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from training.settings import Setting, Value

KINDS = ("choice", "uniform", "log")

KEEPS_SHAPE = frozenset(
    {
        "learning_rate",
        "weight_decay",
        "momentum",
        "label_smoothing",
        "clip_norm",
        "dropout",
        "batch_size",
        "accumulate",
    }
)
"""Settings that may change while the weights and the optimiser's state are kept."""


class SpaceError(ValueError):
    """The error, the text, and a mark below the part that caused it."""

    def __init__(self, why: str, text: str, at: int, length: int) -> None:
        super().__init__(f"{why}\n  {text}\n  {' ' * at}{'^' * max(1, length)}")


@dataclass(frozen=True)
class Draw:
    name: str
    kind: str
    values: tuple[Value, ...]
    """All values of a choice; otherwise the minimum and the maximum."""

    @property
    def is_whole(self) -> bool:
        return isinstance(self.values[0], int)


_TERM = re.compile(r"[^\s(]+(?:\([^)]*\)?)?\S*")
_PARTS = re.compile(r"(\w+)=(\w+)\(([^()]*)\)")


def parse_space(text: str, settings: Iterable[Setting]) -> tuple[Draw, ...]:
    """`settings`: those that may be searched. Raises SpaceError."""
    known = {item.name: item for item in settings}
    draws: dict[str, Draw] = {}
    for label in _TERM.finditer(text):
        parts = _PARTS.fullmatch(label[0])
        if parts is None:
            why = f"{label[0]} is not NAME=KIND(VALUES), as learning_rate=log(1e-4,1e-1)"
            raise SpaceError(why, text, label.start(), len(label[0]))
        start = label.start()
        name, kind = parts[1], parts[2]
        if name not in known:
            why = f"{name} is no setting that can be searched: {', '.join(sorted(known))}"
            raise SpaceError(why, text, start, len(name))
        if name in draws:
            raise SpaceError(f"{name} is there twice", text, start, len(name))
        if kind not in KINDS:
            why = f"{kind} is none of {', '.join(KINDS)}"
            raise SpaceError(why, text, start + parts.start(2), len(kind))
        draws[name] = _draw(known[name], kind, parts[3], text, start + parts.start(3))
    if not draws:
        raise SpaceError("the space is empty: there is nothing to search", text, 0, 1)
    return tuple(draws.values())


def _draw(setting: Setting, kind: str, listed: str, text: str, at: int) -> Draw:
    values: list[Value] = []
    for part in listed.split(","):
        start = at + len(part) - len(part.lstrip())
        values.append(_value(setting, part.strip(), text, start))
        at += len(part) + 1
    at -= len(listed) + 1
    if kind == "choice":
        return Draw(setting.name, kind, tuple(values))
    if setting.type not in ("int", "float"):
        why = f"{setting.name} is no number: it takes choice(…)"
        raise SpaceError(why, text, at, len(listed))
    if len(values) != 2 or not values[0] < values[1]:  # type: ignore[operator]
        why = f"{kind} takes the least and the most, as {kind}(1,10)"
        raise SpaceError(why, text, at, len(listed))
    if kind == "log" and values[0] <= 0:  # type: ignore[operator]
        raise SpaceError("log begins above 0", text, at, len(listed.split(",")[0]))
    return Draw(setting.name, kind, tuple(values))


def _value(setting: Setting, label: str, text: str, at: int) -> Value:
    try:
        value: Value = _READ[setting.type](label)
    except (ValueError, KeyError):
        why = f"{label or 'nothing'} is no {setting.type}, as {setting.name} is"
        raise SpaceError(why, text, at, len(label)) from None
    if setting.choices and value not in setting.choices:
        why = f"{setting.name} is one of {', '.join(setting.choices)}, not {label}"
        raise SpaceError(why, text, at, len(label))
    least, most = setting.at_least, setting.at_most
    if least is not None and not value >= least:  # type: ignore[operator]
        raise SpaceError(f"{setting.name} is at least {least:g}, not {label}", text, at, len(label))
    if most is not None and not value <= most:  # type: ignore[operator]
        raise SpaceError(f"{setting.name} is at most {most:g}, not {label}", text, at, len(label))
    return value


_READ: dict[str, Any] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": lambda word: {"true": True, "false": False}[word.lower()],
}


def domains(draws: Iterable[Draw]) -> dict[str, Any]:
    """In the form that Ray Tune accepts."""
    return {draw.name: _domain(draw) for draw in draws}


def _domain(draw: Draw) -> Any:
    from ray import tune

    if draw.kind == "choice":
        return tune.choice(list(draw.values))
    least, most = draw.values
    if draw.is_whole:
        between = tune.randint if draw.kind == "uniform" else tune.lograndint
        return between(least, int(most) + 1)
    return (tune.uniform if draw.kind == "uniform" else tune.loguniform)(least, most)


def mutations(draws: Iterable[Draw]) -> dict[str, Any]:
    """In the form that population based training accepts: it moves to a neighbour in a list."""
    return {
        draw.name: list(draw.values) if draw.kind == "choice" else _domain(draw) for draw in draws
    }


def within(config: Mapping[str, Any], draws: Iterable[Draw]) -> dict[str, Any]:
    """The configuration with every number clamped to its bounds."""
    found = dict(config)
    for draw in draws:
        if draw.kind != "choice":
            least, most = draw.values
            found[draw.name] = min(max(found[draw.name], least), most)
    return found
