"""A run in a few numbers: what later runs of the same job are compared with."""

from __future__ import annotations

from dataclasses import dataclass

from cockpit.model.run import RunState


@dataclass(frozen=True, slots=True)
class RunSummary:
    """None where nothing was known. Medians are over the samples while the run was RUNNING."""

    run_id: str
    name: str
    job: str
    """What was launched, without what differs from time to time: a bundled job's name, or the
    entrypoint. Runs are compared with runs of the same job and world size."""
    state: RunState
    world_size: int | None = None
    gpus: float = 0.0
    """All of its ranks together."""
    started_s: float | None = None
    ended_s: float | None = None
    attempts: int = 0
    steps: int = 0
    """The newest step."""
    samples_per_s: float | None = None
    step_time_s: float | None = None
    loss: float | None = None
    """The last one."""
    goodput_percent: float | None = None
    submission_id: str = ""
    """Of the job that it was, or is, part of."""
