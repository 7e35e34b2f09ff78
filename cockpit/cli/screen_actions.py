"""The changes that the screen may ask for."""

from __future__ import annotations

from cockpit.actions import ClusterActions
from cockpit.launch.catalogue import bundled_jobs
from cockpit.tui.actions import BundledJob, Setting


class ScreenActions(ClusterActions):
    """The same changes as the verbs make, and the catalogue for the launch dialog."""

    def bundled_jobs(self) -> tuple[BundledJob, ...]:
        return tuple(
            BundledJob(
                job.name,
                job.summary,
                tuple(Setting(s.name, str(s.default), s.help) for s in job.settings),
            )
            for job in bundled_jobs()
        )
