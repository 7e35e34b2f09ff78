"""A recorded run with its settings, versions and nodes."""

from __future__ import annotations

from pathlib import Path

from cockpit.insight.metrics.recorded_run import as_tracked
from cockpit.model.error import UsageError
from cockpit.model.tracking import TrackedRun
from cockpit.recorder.reading.recording import opened


def tracked(path: Path) -> TrackedRun:
    """The run of a recording, to compare it with another. Raises CockpitError."""
    with opened(path) as recording:
        store = recording.store()
        run = store.runs.get(recording.run.run_id)
        if run is None:
            raise UsageError(f"The recording {path.stem} has no run.", recording.damage)
        return as_tracked(store, run)
