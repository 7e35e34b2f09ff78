"""`cockpit launch --list`: the bundled jobs; with a job's name, its settings by group."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Iterator

from cockpit.cli.output import tables
from cockpit.launch.job import BundledJob, JobSetting, bundled_job, bundled_jobs, groups
from cockpit.model.error import ExitCode

NARROWEST, WIDEST = 80, 120
DEFAULT_CELLS = 16
"""Longest default that has its own column; a longer one follows the help."""


def run(args: argparse.Namespace) -> int:
    if args.output != "table":
        listed = bundled_job(args.job).settings if args.job else bundled_jobs()
        tables.print_rows([tables.as_json(one) for one in listed], (), args.output)
        return int(ExitCode.DONE)
    lines = of_job(bundled_job(args.job), width()) if args.job else of_jobs(width())
    for line in lines:
        print(line)
    return int(ExitCode.DONE)


def width() -> int:
    """Width of the terminal; 80 columns if the output is not a terminal."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 80
    return min(max(columns, NARROWEST), WIDEST)


def of_jobs(width: int) -> Iterator[str]:
    """One line per job."""
    jobs = bundled_jobs()
    name_width = max(len(job.name) for job in jobs)
    yield f"{'NAME':<{name_width}}  SUMMARY"
    for job in jobs:
        yield from _hanging(f"{job.name:<{name_width}}  ", job.summary, width)
    yield ""
    yield "cockpit launch JOB --list prints the settings of one."


def of_job(job: BundledJob, width: int) -> Iterator[str]:
    """Describe a job and its settings: name, default, help."""
    yield from textwrap.wrap(f"{job.name}: {job.summary}", width)
    for group in groups(job, bundled_jobs()):
        name_width = max(len(setting.name) for setting in group.settings)
        default_width = max(len(_default(setting)) for setting in group.settings)
        yield ""
        yield group.title
        for setting in group.settings:
            start = f"  {setting.name:<{name_width}}  {_default(setting):<{default_width}}  "
            yield from _hanging(start, _about(setting), width)
    yield ""
    yield f"cockpit launch {job.name} --set KEY=VALUE, or --settings FILE for many."


def _default(setting: JobSetting) -> str:
    text = setting.default_text or "–"
    return text if len(text) <= DEFAULT_CELLS else f"{text[: DEFAULT_CELLS - 1]}…"


def _about(setting: JobSetting) -> str:
    message = f" [{', '.join(setting.choices)}]" if setting.choices else ""
    text = setting.default_text
    return f"{setting.help}{message}" + (f"; default {text}" if len(text) > DEFAULT_CELLS else "")


def _hanging(start: str, text: str, width: int) -> list[str]:
    """The text behind `start`; further lines of it are below its first."""
    wrapped = textwrap.wrap(
        text,
        width,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_on_hyphens=False,
    )
    return wrapped or [start.rstrip()]
