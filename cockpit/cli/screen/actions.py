"""The changes that the screen may ask for."""

from __future__ import annotations

from cockpit.actions.drills import DrillActions
from cockpit.launch import catalog
from cockpit.launch.job import BundledJob


class ScreenActions(DrillActions):
    """The same changes as the verbs make, and the catalogue for the launch dialog."""

    def bundled_jobs(self) -> tuple[BundledJob, ...]:
        return catalog.bundled_jobs()
