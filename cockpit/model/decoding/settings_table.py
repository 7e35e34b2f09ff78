"""A table of the configuration, checked against the types of its keys."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import fields

from cockpit.model.error import UsageError
from cockpit.model.text import one_line

Number = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
_AT_LEAST_0 = {int: Annotated[int, Meta(ge=0)], float: Number}
"""Numbers without limits of their own."""


def types_of(kind: type[Struct]) -> dict[str, Any]:
    """The fields of a struct of settings, by name."""
    return {item.name: item.type for item in fields(kind)}


def checked(
    raw: Mapping[str, Any],
    types: Mapping[str, Any],
    prefix: str,
    todo: str = "",
    *,
    is_secret: bool = False,
) -> dict[str, Any]:
    """The values as their types. `prefix`: of a key in errors, such as `alerts.`.

    Raises UsageError, which does not quote the values of a table with secrets.
    """
    found: dict[str, Any] = {}
    for key, value in raw.items():
        if key not in types:
            known = f"Available: {', '.join(sorted(types))}."
            raise UsageError(f"{prefix}{one_line(key)} is no setting.", known, todo)
        kind = _AT_LEAST_0.get(types[key], types[key])
        try:
            found[key] = convert(value, kind)
        except ValidationError as error:
            shown = "" if is_secret else f": {one_line(repr(value))}"
            what = f"{prefix}{key} is not understood{shown}."
            raise UsageError(what, _expected(kind), todo) from error
    return found


def _expected(kind: Any) -> str:
    from msgspec import inspect

    match inspect.type_info(kind):
        case inspect.BoolType():
            return "It must be true or false."
        case inspect.IntType(ge=least):
            return f"It is a whole number, {least} or more."
        case inspect.FloatType(gt=above, le=most):
            low = ">= 0" if above is None else f"> {above:g}"
            upto = "" if most in (None, sys.float_info.max) else f", up to {most:g}"
            return f"It is a number {low}{upto}."
        case inspect.EnumType(cls=cls):
            return f"It is one of: {', '.join(cls)}."
        case inspect.StrType(max_length=most):
            return "It is a text." if most is None else f"It is a text of up to {most} characters."
        case _:
            return f"It is a table of {'texts' if kind == dict[str, str] else 'numbers'}."
