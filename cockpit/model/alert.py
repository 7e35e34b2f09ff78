"""What somebody should look at: found by a diagnosis, raised and cleared with hysteresis."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Finding(Struct, frozen=True):
    """What a diagnosis says of one subject, now. Pure functions of the store make them."""

    kind: str
    """A plain name in kebab-case: `straggler`, `loss-nan`, `silent-rank`, …"""
    subject: str
    """What it is of: `run RUN_ID`, `rank 3`, `cluster`. With `kind` it names the finding."""
    severity: Severity
    what: str
    """One line: what is so, with the numbers."""
    why: str = ""
    """One line: how that is known; the threshold and what it was compared with."""
    todo: str = ""
    """One line: what to try."""
    run_id: str = ""


class Alert(Struct, frozen=True):
    """A finding that lasted long enough to be raised."""

    id: str
    """`KIND/SUBJECT`, and so the same each time it comes again."""
    finding: Finding
    raised_s: float
