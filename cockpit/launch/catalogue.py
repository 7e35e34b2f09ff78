"""The bundled jobs, from the list that `training` keeps of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from cockpit.launch.nearest import did_you_mean
from cockpit.launch.package import training_directory
from cockpit.model.error import UsageError

Value = bool | int | float | str


@dataclass(frozen=True, slots=True)
class JobSetting:
    name: str
    type: str
    """`bool`, `int`, `float` or `str`."""
    default: Value
    help: str


@dataclass(frozen=True, slots=True)
class BundledJob:
    name: str
    module: str
    summary: str
    settings: tuple[JobSetting, ...]

    def setting(self, name: str) -> JobSetting:
        """By name, with dashes or underscores. Raises UsageError."""
        wanted = name.replace("-", "_")
        for setting in self.settings:
            if setting.name == wanted:
                return setting
        names = [setting.name for setting in self.settings]
        raise UsageError(
            f"The job {self.name} has no setting {name!r}{did_you_mean(wanted, names)}",
            f"it has {', '.join(names)}",
        )


def bundled_jobs() -> tuple[BundledJob, ...]:
    raw = json.loads((training_directory() / "jobs" / "catalogue.json").read_text("utf-8"))
    return tuple(
        BundledJob(
            job["name"],
            job["module"],
            job["summary"],
            tuple(
                JobSetting(item["name"], item["type"], item["default"], item["help"])
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
        "cockpit launch --list tells their settings; cockpit launch -- python … runs a script",
    )


def flags(job: BundledJob, settings: Mapping[str, str]) -> tuple[str, ...]:
    """The settings as the job's command line. Raises UsageError for one it would not take."""
    argv: list[str] = []
    for name, value in settings.items():
        setting = job.setting(name)
        _require_type(job, setting, value)
        # One word, so that a value such as -1 is not taken for a flag.
        argv.append(f"--{setting.name.replace('_', '-')}={value}")
    return tuple(argv)


def _require_type(job: BundledJob, setting: JobSetting, value: str) -> None:
    try:
        if setting.type == "int":
            int(value)
        elif setting.type == "float":
            float(value)
        elif setting.type == "bool" and value.lower() not in _BOOLS:
            raise ValueError
    except ValueError as error:
        raise UsageError(
            f"{setting.name}={value} is not {_ARTICLES[setting.type]}",
            f"{job.name}: {setting.name} is {setting.help} (default {setting.default!r})",
        ) from error


_BOOLS = ("true", "false", "yes", "no", "1", "0")
_ARTICLES = {"int": "a whole number", "float": "a number", "bool": "true or false"}
