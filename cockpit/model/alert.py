"""Findings that need attention, and the alerts that are raised and cleared with hysteresis."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Finding(Struct, frozen=True):
    """The current result of a diagnosis of one subject. Pure functions of the store create it."""

    kind: str
    """The kind, in kebab-case: `straggler`, `loss-nan`, `silent-rank`, …"""
    subject: str
    """The subject: `run RUN_ID`, `rank 3`, `cluster`. With `kind` it identifies the finding."""
    severity: Severity
    what: str
    """One line: the problem, with its numbers."""
    why: str = ""
    """One line: the evidence, that is, the threshold and the value compared with it."""
    todo: str = ""
    """One line: what to try."""
    run_id: str = ""


class Alert(Struct, frozen=True):
    """A finding that lasted long enough to be raised."""

    id: str
    """`KIND/SUBJECT`: the same each time that the alert is raised."""
    finding: Finding
    raised_s: float


class PastAlert(Struct, frozen=True):
    """An alert that is over, as another system recorded it."""

    alert: Alert
    cleared_s: float
