"""The tables of docs/training.md as the catalogue has them; as a module, it writes them there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cockpit.launch.job import BundledJob, JobSetting, bundled_jobs
from tests.page import rewrite

PAGE = Path(__file__).parents[2] / "docs/training.md"
_TYPES = {"bool": "`true`, `false`", "int": "integer", "float": "number", "str": "text"}


def tables() -> dict[str, str]:
    """By the name in the page's comments around each."""
    jobs = bundled_jobs()
    return {"jobs": of_jobs(jobs), "settings": of_settings(jobs)}


def of_jobs(jobs: Sequence[BundledJob]) -> str:
    lines = ["| job | description |", "|---|---|"]
    return "\n".join([*lines, *(f"| `{job.name}` | {_cell(job.summary)} |" for job in jobs)])


def of_settings(jobs: Sequence[BundledJob]) -> str:
    """One table per group: first those of most jobs, in the order of declaration, then those of one
    job.
    """
    titles = list(dict.fromkeys(setting.group for job in jobs for setting in job.settings))
    titles.sort(key=lambda title: len(_jobs_with(jobs, title)) == 1)
    return "\n\n".join(_group(jobs, title) for title in titles)


def _group(jobs: Sequence[BundledJob], title: str) -> str:
    having = _jobs_with(jobs, title)
    named = dict.fromkeys(one.name for job in having for one in job.settings if one.group == title)
    head = ["setting", "default", "description", "allowed values"]
    rows = [_row(having, name) for name in named]
    return "\n".join(
        [
            f"**{title}** ({_whose(jobs, having)})",
            "",
            *(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)),
        ]
    )


def _whose(jobs: Sequence[BundledJob], having: Sequence[BundledJob]) -> str:
    others = [job for job in jobs if job not in having]
    if not others:
        return "all jobs"
    if len(others) < len(having):
        return f"all jobs except {_names(others)}"
    return _names(having)


def _row(having: Sequence[BundledJob], name: str) -> list[str]:
    """The default of most jobs, and the jobs with another one."""
    declared = {job.name: job.setting(name) for job in having if job.has(name)}
    default, *others = _by_jobs({job: _default(one) for job, one in declared.items()})
    about, *otherwise = _by_jobs({job: _cell(one.help) for job, one in declared.items()})
    without = [job for job in having if job.name not in declared]
    values, *other_values = _by_jobs({job: _values(one) for job, one in declared.items()})
    return [
        f"`{name}`",
        "; ".join([default[0], *(f"{text} for {jobs}" for text, jobs in others)]),
        "; ".join([about[0], *(f"{jobs}: {text}" for text, jobs in otherwise)])
        + (f" (not for {_names(without)})" if without else ""),
        "; ".join([values[0], *(f"{text} for {jobs}" for text, jobs in other_values)]),
    ]


def _by_jobs(texts: Mapping[str, str]) -> list[tuple[str, str]]:
    """Each text with the names of its jobs, that of most jobs first."""
    jobs: dict[str, list[str]] = {}
    for job, text in texts.items():
        jobs.setdefault(text, []).append(f"`{job}`")
    most = sorted(jobs, key=lambda text: -len(jobs[text]))
    return [(text, ", ".join(jobs[text])) for text in most]


def _values(setting: JobSetting) -> str:
    """The choices, or the type with its range."""
    if setting.choices:
        return ", ".join(f"`{text}`" for text in setting.choices)
    return ", ".join(filter(None, (_TYPES[setting.type], setting.range)))


def _default(setting: JobSetting) -> str:
    return f"`{_cell(setting.default_text)}`" if setting.default_text else "(empty)"


def _jobs_with(jobs: Sequence[BundledJob], title: str) -> list[BundledJob]:
    return [job for job in jobs if any(one.group == title for one in job.settings)]


def _names(jobs: Sequence[BundledJob]) -> str:
    return ", ".join(f"`{job.name}`" for job in jobs)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    rewrite(PAGE, tables())
