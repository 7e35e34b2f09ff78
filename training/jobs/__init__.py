"""The bundled jobs. Light to import: what a job needs is imported when it runs.

`catalogue.json` beside this file says the same to those who cannot import it;
`python -m training.jobs` writes it anew.
"""

from __future__ import annotations

from dataclasses import dataclass

SETTINGS = "Settings"
"""The name of the settings' dataclass in a job's module."""


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    module: str
    summary: str


JOBS = (
    Job(
        "checkpointed",
        "training.jobs.checkpointed",
        "Handwritten digits with DDP: light, real, and resumes exactly where it was killed.",
    ),
)


def job(name: str) -> Job:
    """Raises KeyError when there is none of that name."""
    return {item.name: item for item in JOBS}[name]
