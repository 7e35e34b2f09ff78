"""The bundled jobs, from the list that `training` keeps of them."""

from __future__ import annotations

import json

from cockpit.launch.closest_name import did_you_mean
from cockpit.launch.job import WITHOUT_GROUP, BundledJob, JobSetting
from cockpit.launch.package import training_directory
from cockpit.model.error import UsageError


def bundled_jobs() -> tuple[BundledJob, ...]:
    raw = json.loads((training_directory() / "jobs" / "catalogue.json").read_text("utf-8"))
    return tuple(
        BundledJob(
            job["name"],
            job["module"],
            job["summary"],
            tuple(
                JobSetting(
                    item["name"],
                    item["type"],
                    item["default"],
                    item["help"],
                    tuple(item.get("choices", ())),  # an older `training` has none of these
                    item.get("group", WITHOUT_GROUP),
                    item.get("at_least"),
                    item.get("at_most"),
                )
                for item in job["settings"]
            ),
        )
        for job in raw
    )


def bundled_job(name: str) -> BundledJob:
    """Raises UsageError, naming what there is."""
    jobs = bundled_jobs()
    for job in jobs:
        if job.name == name:
            return job
    names = [job.name for job in jobs]
    raise UsageError(
        f"There is no bundled job {name!r}{did_you_mean(name, names)}",
        f"there is {', '.join(names)}",
        "cockpit launch --list shows them; cockpit launch -- python … runs a script",
    )
