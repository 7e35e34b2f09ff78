"""A job's settings: a frozen dataclass, whose fields are command-line flags.

A field is declared with its help, `epochs: int = setting(60, "passes over the data")`, and becomes
`--epochs N`. Types are bool, int, float and str; bools take true or false. The class that declares
a field defines its group: the first line of its docstring. A job's own class may redeclare a field
with another default; it stays in its group.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, cast

T = TypeVar("T")
Value = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    type: str
    default: Value
    help: str
    choices: tuple[str, ...]
    """The permitted values; () for any."""
    group: str
    at_least: float | None = None
    at_most: float | None = None
    """The permitted range; None: unlimited."""


def setting(
    default: T,
    help: str,
    choices: Sequence[str] = (),
    *,
    at_least: float = -math.inf,
    at_most: float = math.inf,
) -> T:
    """A field with its help. Typed as its default, like `dataclasses.field`."""
    metadata = {"help": help, "choices": tuple(choices), "range": (at_least, at_most)}
    declared: T = field(default=default, metadata=metadata)
    return declared


def describe(settings: type[Any]) -> tuple[Setting, ...]:
    """Each field, in the group of the class that declares it first, starting with the last base."""
    groups = {
        name: (declaring.__doc__ or "").partition("\n")[0].rstrip(".")
        for declaring in settings.__mro__  # from the job's own to those that it inherits from
        for name in vars(declaring).get("__annotations__", {})
    }
    return tuple(
        Setting(
            item.name,
            str(item.type),
            cast(Value, item.default),
            item.metadata["help"],
            item.metadata["choices"],
            groups[item.name],
            *(None if math.isinf(end) else end for end in item.metadata["range"]),
        )
        for item in fields(settings)
    )


def parse(settings: type[T], program: str, summary: str, argv: Sequence[str] | None = None) -> T:
    """The settings of a command line; exits with 2 and a message if it is invalid."""
    parser = argparse.ArgumentParser(
        program, description=summary, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    groups: dict[str, Any] = {}
    for item in describe(settings):
        if item.group not in groups:
            groups[item.group] = parser.add_argument_group(item.group)
        groups[item.group].add_argument(
            "--" + item.name.replace("_", "-"),
            # `--set learning_rate=0.1` becomes `--learning_rate 0.1`
            *(["--" + item.name] if "_" in item.name else []),
            # a bool needs no value: `--quick` is `--quick true`
            **({"nargs": "?", "const": True} if item.type == "bool" else {}),
            type=_within(_PARSERS[item.type], item.at_least, item.at_most),
            default=item.default,
            choices=item.choices or None,
            metavar="|".join(item.choices) or item.type.upper(),
            help=item.help.replace("%", "%%"),
        )
    return settings(**vars(parser.parse_args(argv)))


def _within(
    parser: Callable[[str], Any], least: float | None, most: float | None
) -> Callable[[str], Any]:
    def parsed(text: str) -> Any:
        value = parser(text)
        too_small = least is not None and not value >= least
        if too_small or (most is not None and not value <= most):
            raise argparse.ArgumentTypeError(f"{value} is not {_range(least, most)}")
        return value

    parsed.__name__ = parser.__name__.lstrip("_")  # "invalid int value"
    return parsed


def _range(least: float | None, most: float | None) -> str:
    if least is None or most is None:
        return f"{most:g} or less" if least is None else f"{least:g} or more"
    return f"{least:g} to {most:g}"


def boolean_variable(name: str, *, default: bool) -> bool:
    """Return the environment variable as true or false. Raises ValueError for any other text."""
    text = os.environ.get(name, "").strip()
    texts = _TRUTH_VALUES | {"on": True, "y": True, "off": False, "n": False}
    if text and text.lower() not in texts:
        raise ValueError(f"{name} is {text!r}, which is neither true nor false")
    return texts[text.lower()] if text else default


def _bool(text: str) -> bool:
    if text.lower() not in _TRUTH_VALUES:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return _TRUTH_VALUES[text.lower()]


_TRUTH_VALUES = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_PARSERS: dict[str, Any] = {"bool": _bool, "int": int, "float": float, "str": str}
