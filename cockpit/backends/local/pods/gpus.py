"""The machine's GPUs, each given to one pod at a time."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path


def gpus_here() -> tuple[str, ...]:
    """As CUDA_VISIBLE_DEVICES names them; only those that this user was given, if any were."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return tuple(name.strip() for name in given.split(",") if name.strip() not in ("", "-1"))
    found = (re.fullmatch(r"nvidia(\d+)", path.name) for path in Path("/dev").glob("nvidia*"))
    return tuple(sorted((match[1] for match in found if match), key=int))


def take_gpus(wanted: int, here: Collection[str], taken: Collection[str]) -> tuple[str, ...] | None:
    """`wanted` GPUs that no pod has, or None when there are not that many."""
    free = [gpu for gpu in here if gpu not in taken]
    return tuple(free[:wanted]) if len(free) >= wanted else None
