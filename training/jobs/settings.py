"""A job's settings: a frozen dataclass, its fields as flags of the command line.

A field is declared with its help, `epochs: int = setting(60, "passes over the data")`, and becomes
`--epochs N`. Types are bool, int, float and str; bools take true or false.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

T = TypeVar("T")
Value = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    type: str
    default: Value
    help: str


def setting(default: T, help: str) -> T:
    """A field with its help. Typed as the default is, like `dataclasses.field`."""
    declared: T = field(default=default, metadata={"help": help})
    return declared


def describe(settings: type[Any]) -> tuple[Setting, ...]:
    declared: list[tuple[str, str, Any, str]] = [
        (item.name, str(item.type), item.default, item.metadata["help"])
        for item in fields(settings)
    ]
    return tuple(Setting(*item) for item in declared)


def parse(settings: type[T], program: str, summary: str, argv: Sequence[str] | None = None) -> T:
    """The settings of a command line; exits with 2 and says why when it is wrong."""
    parser = argparse.ArgumentParser(
        program, description=summary, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    for item in describe(settings):
        parser.add_argument(
            "--" + item.name.replace("_", "-"),
            # `--set learning_rate=0.1` becomes `--learning_rate 0.1`
            *(["--" + item.name] if "_" in item.name else []),
            type=_PARSERS[item.type],
            default=item.default,
            metavar=item.type.upper(),
            help=item.help,
        )
    return settings(**vars(parser.parse_args(argv)))


def _bool(word: str) -> bool:
    if word.lower() not in _WORDS:
        raise argparse.ArgumentTypeError(f"{word!r} is neither true nor false")
    return _WORDS[word.lower()]


_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_PARSERS: dict[str, Any] = {"bool": _bool, "int": int, "float": float, "str": str}
