"""Parse text as true or false, and refuse everything else."""

from __future__ import annotations

from collections.abc import Mapping

from cockpit.model.error import UsageError
from cockpit.model.text import one_line

VALUES = {
    "1": True, "true": True, "yes": True, "y": True, "on": True,
    "0": False, "false": False, "no": False, "n": False, "off": False,
}  # fmt: skip


def parse_boolean(text: str) -> bool:
    """Return the value; case and surrounding spaces are ignored. Raises ValueError."""
    try:
        return VALUES[text.strip().lower()]
    except KeyError:
        raise ValueError("true or false is expected") from None


def boolean_variable(environ: Mapping[str, str], name: str) -> bool | None:
    """Return the environment variable, or None if it is unset or empty. Raises UsageError."""
    text = environ.get(name, "")
    try:
        return parse_boolean(text) if text else None
    except ValueError:
        raise UsageError(
            f"{name} is {one_line(text, 40)!r}.",
            "It is neither true nor false.",
            f"Set {name}=true or {name}=false, or unset it.",
        ) from None
