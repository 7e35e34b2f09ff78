"""A bundled job and its settings, as `training` declares them. Pure."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct, convert

from cockpit.launch.closest_name import did_you_mean
from cockpit.launch.package import training_directory
from cockpit.model.error import UsageError

Value = bool | int | float | str

WITHOUT_GROUP = "Settings"
"""Of the settings of a catalogue that was written before they had groups."""
NAMED_AT_MOST = 12
"""More names than this do not help after a mistyped one."""


class JobSetting(Struct, frozen=True):
    name: str
    type: str
    """`bool`, `int`, `float` or `str`."""
    default: Value
    help: str
    choices: tuple[str, ...] = ()
    """The texts that it may be; () for any."""
    group: str = WITHOUT_GROUP
    at_least: float | None = None
    at_most: float | None = None
    """The valid range; None: no limit."""

    @property
    def default_text(self) -> str:
        """The default as typed on a command line."""
        return _TEXTS[self.default] if isinstance(self.default, bool) else str(self.default)

    def complaint(self, text: str) -> str:
        """Return what is wrong with a value, to append to it; "" for a valid one."""
        if self.choices and text not in self.choices:
            return f"is not one of its choices{did_you_mean(text.lower(), self.choices)}"
        try:
            value = self._parsed(text)
        except ValueError:
            return f"is not {_ARTICLES[self.type]}"
        return "" if isinstance(value, str) or self._is_within(value) else f"is not {self.range}"

    @property
    def range(self) -> str:
        """The numbers that it may be, as text; "" for any."""
        if self.at_least is None or self.at_most is None:
            if self.at_least is not None:
                return f"{self.at_least:g} or more"
            return f"{self.at_most:g} or less" if self.at_most is not None else ""
        return f"{self.at_least:g} to {self.at_most:g}"

    def _is_within(self, value: float) -> bool:
        least = -math.inf if self.at_least is None else self.at_least
        most = math.inf if self.at_most is None else self.at_most
        return least <= value <= most or not self.range

    def is_default(self, text: str) -> bool:
        """Whether it means the default, however it is written."""
        return not self.complaint(text) and self._parsed(text) == self.default

    def _parsed(self, text: str) -> Value:
        if self.type == "int":
            return int(text)
        if self.type == "float":
            return float(text)
        if self.type == "bool":
            if text.lower() not in BOOLS:
                raise ValueError(text)
            return BOOLS[text.lower()]
        return text


class Group(Struct, frozen=True):
    """Settings that belong together."""

    title: str
    settings: tuple[JobSetting, ...]
    is_main: bool
    """The settings to show before a launch: those of the job, then duration and resources."""


class BundledJob(Struct, frozen=True):
    name: str
    module: str
    summary: str
    settings: tuple[JobSetting, ...]

    def has(self, name: str) -> bool:
        return any(setting.name == name for setting in self.settings)

    def setting(self, name: str) -> JobSetting:
        """By name, with dashes or underscores. Raises UsageError."""
        wanted = name.replace("-", "_")
        for setting in self.settings:
            if setting.name == wanted:
                return setting
        names = [setting.name for setting in self.settings]
        listed = f"It has {', '.join(names)}" if names else "It has none"
        raise UsageError(
            f"The job {self.name} has no setting {name!r}{did_you_mean(wanted, names)}",
            listed if len(names) <= NAMED_AT_MOST else f"It has {len(names)} others",
            f"cockpit launch {self.name} --list shows them",
        )

    def require(self, setting: JobSetting, text: str) -> None:
        """Raises UsageError for a value that the job would not take."""
        if complaint := setting.complaint(text):
            about = f"{setting.help} (default {setting.default_text or 'empty'})"
            if setting.choices:
                about = f"one of {', '.join(setting.choices)}"
            raise UsageError(
                f"{setting.name}={text} {complaint}", f"{self.name}: {setting.name}: {about}"
            )


def groups(job: BundledJob, jobs: Sequence[BundledJob]) -> tuple[Group, ...]:
    """The job's settings: first the groups that few of `jobs` have, then the rest as declared."""
    found: dict[str, list[JobSetting]] = {}
    for setting in job.settings:
        found.setdefault(setting.group, []).append(setting)
    having = Counter(title for one in jobs for title in {setting.group for setting in one.settings})
    few = max(len(jobs) // 3, 1) if len(jobs) > 1 else 0
    own = [title for title in found if having[title] <= few]
    common = [title for title in found if title not in own]
    main = {*own, *common[:1]}  # the settings that all jobs share begin with those of the run
    return tuple(Group(title, tuple(found[title]), title in main) for title in (*own, *common))


def flags(job: BundledJob, settings: Mapping[str, str]) -> tuple[str, ...]:
    """The settings as the job's command line. Raises UsageError for one it would not take."""
    argv: list[str] = []
    for name, value in settings.items():
        setting = job.setting(name)
        job.require(setting, value)
        # One argument, so that a value such as -1 is not taken for a flag.
        argv.append(f"--{setting.name.replace('_', '-')}={value}")
    return tuple(argv)


BOOLS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_TEXTS = {True: "true", False: "false"}
_ARTICLES = {"int": "a whole number", "float": "a number", "bool": "true or false"}


def bundled_jobs() -> tuple[BundledJob, ...]:
    raw = json.loads((training_directory() / "jobs" / "catalogue.json").read_text("utf-8"))
    return convert(raw, tuple[BundledJob, ...])


def bundled_job(name: str) -> BundledJob:
    """Raises UsageError, naming what there is."""
    jobs = bundled_jobs()
    for job in jobs:
        if job.name == name:
            return job
    names = [job.name for job in jobs]
    raise UsageError(
        f"There is no bundled job {name!r}{did_you_mean(name, names)}",
        f"Available: {', '.join(names)}",
        "cockpit launch --list shows them; cockpit launch -- python … runs a script",
    )
