"""Suggest the closest valid name for a mistyped one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """`: did you mean X?` to put behind a sentence, or nothing."""
    listed = list(names)
    near = difflib.get_close_matches(name, listed, n=1, cutoff=0.6)
    near = near or [known for known in listed if name and known.startswith(name)][:1]
    return f": did you mean {near[0]}?" if near else ""
