"""Parse text as true or false, and refuse everything else."""

from __future__ import annotations

WORDS = {
    "1": True, "true": True, "yes": True, "y": True, "on": True,
    "0": False, "false": False, "no": False, "n": False, "off": False,
}  # fmt: skip


def parse_boolean(text: str) -> bool:
    """Return the value, whatever its case and surrounding spaces. Raises ValueError."""
    try:
        return WORDS[text.strip().lower()]
    except KeyError:
        raise ValueError("true or false is expected") from None
