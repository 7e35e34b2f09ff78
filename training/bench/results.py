"""The measurements of one run of the benchmark, and their file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training.bench.record import Unreadable

SCHEMA = 1
"""The version of the file. A change that older readers cannot read increments it."""


@dataclass(frozen=True)
class Results:
    machine: str
    """Its processors and devices, as text."""
    began_at: str
    """UTC, ISO 8601."""
    took_s: float
    how: str
    """How the ranks were started, and their number, in a sentence."""
    quick: bool
    settings: Mapping[str, Any]
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By part, its result, as `dataclasses.asdict` returns it."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """By part, why it was not measured."""

    def write(self, file: Path) -> None:
        data = {"schema": SCHEMA} | vars(self)
        file.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def read(file: Path) -> Results:
    """Raises Unreadable, as one line."""
    try:
        data = json.loads(file.read_text())
        schema = data.pop("schema")
        if schema != SCHEMA:
            raise Unreadable(f"{file} is of schema {schema}, and this reads {SCHEMA}")
        return Results(**data)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        if isinstance(error, Unreadable):
            raise
        raise Unreadable(f"{file} holds no results of a benchmark: {error}") from error
