"""The order of a launch: a job, and what was typed for its settings. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from cockpit.launch.job import BundledJob, Group, JobSetting, groups


class Head(Struct, frozen=True):
    """The line over a group's settings."""

    title: str
    count: int
    changed: int
    is_open: bool


class Line(Struct, frozen=True):
    """A setting with its current value."""

    setting: JobSetting
    text: str
    is_changed: bool
    complaint: str
    """What is wrong with it; "" if it is valid."""

    def another(self, by: int) -> str:
        """The choice that many places further; "" if there are no choices."""
        terms = ("true", "false") if self.setting.type == "bool" else self.setting.choices
        if not terms:
            return ""
        at = terms.index(self.text) if self.text in terms else -1 if by > 0 else 0
        return terms[(at + by) % len(terms)]


class LaunchForm(Struct):
    """The jobs, the selected one, and the input, which is kept for each job."""

    jobs: Sequence[BundledJob]
    chosen: str = ""
    typed: dict[str, dict[str, str]] = field(default_factory=dict)
    """By job and setting."""
    toggled: dict[tuple[str, str], bool] = field(default_factory=dict)
    """By job and group: whether it was opened or closed."""

    @property
    def job(self) -> BundledJob:
        return next(job for job in self.jobs if job.name == self.chosen)

    @property
    def groups(self) -> tuple[Group, ...]:
        return groups(self.job, self.jobs)

    def found(self, text: str) -> list[BundledJob]:
        """The jobs whose name or summary contains all search terms, best match first."""
        found = [job for job in self.jobs if _has(text, job.name, job.summary)]
        return sorted(found, key=lambda job: _unlike(text, job.name)) if text else found

    def put(self, name: str, text: str) -> None:
        """The input for a setting; for a number or a string, an empty input is the default."""
        setting = self.job.setting(name)
        typed = self.typed.setdefault(self.chosen, {})
        text = text.strip()
        if text == setting.default_text or (not text and not _may_be_empty(setting)):
            typed.pop(name, None)
        else:
            typed[name] = text

    def line(self, setting: JobSetting) -> Line:
        text = self.typed.get(self.chosen, {}).get(setting.name, setting.default_text)
        return Line(setting, text, not setting.is_default(text), setting.complaint(text))

    def lines(self, text: str = "") -> list[Head | Line]:
        """The visible lines: heads, and the settings of open groups.

        With search terms, the settings whose name, help or choices contain all of them.
        """
        shown: list[Head | Line] = []
        for group in self.groups:
            lines = [self.line(one) for one in group.settings if not text or _of(one, text)]
            if not lines:
                continue
            is_open = bool(text) or self.is_open(group)
            changed = sum(line.is_changed for line in lines)
            shown.append(Head(group.title, len(lines), changed, is_open))
            shown += lines if is_open else []
        return shown

    def best_match(self, text: str) -> str:
        """The best match; "" if no setting contains the terms."""
        shown = [line.setting.name for line in self.lines(text) if isinstance(line, Line)]
        return min(shown, key=lambda name: _unlike(text, name), default="")

    def is_open(self, group: Group) -> bool:
        return self.toggled.get((self.chosen, group.title), group.is_main)

    def toggle(self, title: str) -> None:
        group = next(group for group in self.groups if group.title == title)
        self.toggled[self.chosen, title] = not self.is_open(group)

    def reveal(self, name: str) -> None:
        """Open the group that the setting is in."""
        self.toggled[self.chosen, self.job.setting(name).group] = True

    @property
    def changed(self) -> Mapping[str, str]:
        """The settings that differ from the job's defaults."""
        lines = [self.line(setting) for setting in self.job.settings]
        return {line.setting.name: line.text for line in lines if line.is_changed}

    @property
    def wrong(self) -> list[JobSetting]:
        """The invalid settings, in the order in which they are shown."""
        return [one for group in self.groups for one in group.settings if self.line(one).complaint]


def _may_be_empty(setting: JobSetting) -> bool:
    return setting.type == "str" and not setting.choices


def _of(setting: JobSetting, text: str) -> bool:
    return _has(text, setting.name, setting.help, *setting.choices)


def _unlike(text: str, name: str) -> int:
    """The distance of the terms from that name."""
    text = text.strip().lower().replace("-", "_")
    name = name.replace("-", "_")
    return 0 if text == name else 1 if name.startswith(text) else 2 if text in name else 3


def _has(text: str, *texts: str) -> bool:
    where = " ".join(texts).lower()
    return all(label.replace("-", "_") in where or label in where for label in text.lower().split())
