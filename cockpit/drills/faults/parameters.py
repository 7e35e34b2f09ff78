"""The values of a fault's parameters: what was given, as their types, and the defaults."""

from __future__ import annotations

from collections.abc import Mapping

from cockpit.drills.faults.fault import Fault, Parameter, Value
from cockpit.model.boolean import parse_boolean
from cockpit.model.error import UsageError
from cockpit.model.text import one_line


def parsed(kind: Fault, given: Mapping[str, str]) -> dict[str, Value]:
    """All parameters of the kind. Raises UsageError for one that is not there, or no such value."""
    known = {parameter.name: parameter for parameter in kind.parameters}
    for name in given:
        if name not in known:
            raise UsageError(
                f"Fault {kind.name} has no parameter {one_line(name)!r}.",
                f"It has: {', '.join(known) or 'none'}.",
            )
    return {
        name: _value(kind, parameter, given[name]) if name in given else parameter.default
        for name, parameter in known.items()
    }


def _value(kind: Fault, parameter: Parameter, text: str) -> Value:
    default = parameter.default
    try:
        value: Value
        if isinstance(default, bool):
            value = parse_boolean(text)
        elif isinstance(default, int):
            value = int(text)
        elif isinstance(default, float):
            value = float(text)
        else:
            value = text
    except ValueError as error:
        wanted = "true or false" if isinstance(default, bool) else f"a {type(default).__name__}"
        raise UsageError(
            f"{parameter.name} of {kind.name} is {one_line(text)!r}.", f"It has to be {wanted}."
        ) from error
    if isinstance(value, int | float) and not isinstance(value, bool):
        nan = value != value
        if nan or value < 0:
            raise UsageError(
                f"{parameter.name} of {kind.name} is {one_line(text)!r}.", "It has to be 0 or more."
            )
    if parameter.choices and value not in parameter.choices:
        raise UsageError(
            f"{parameter.name} of {kind.name} is {one_line(text)!r}.",
            f"It is one of: {', '.join(parameter.choices)}.",
        )
    return value
