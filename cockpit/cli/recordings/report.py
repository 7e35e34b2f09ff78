"""`cockpit report FILE|RUN`: a recorded run as one HTML file, as Markdown or as JSON."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cockpit.cli.options import mlflow
from cockpit.cli.output import links
from cockpit.config import paths
from cockpit.format import in_seconds
from cockpit.model.error import CockpitError, ExitCode, UsageError
from cockpit.model.text import one_line

if TYPE_CHECKING:
    from cockpit.report.document import Document

ENDINGS = {"html": ".html", "md": ".md", "json": ".json"}
IN_QUERY = re.compile(r"[A-Za-z0-9_-]+")
"""Ids that need no quoting in a query of MLflow."""


def arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument(
        "recording",
        metavar="FILE|RUN",
        help="a recording, or the name or id of a recorded run, or its job's",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=tuple(ENDINGS),
        help="the format (default: html, or by the ending of --out)",
    )
    parser.add_argument(
        "--out",
        metavar="PATH",
        help="file or directory (default: here, named after the run); - for standard output",
    )
    parser.add_argument(
        "--mlflow",
        action="store_true",
        help="add it to the MLflow run of this run, as the artifact report.html",
    )


def run(args: argparse.Namespace) -> int:
    how = form(args.output, args.out)
    if args.mlflow:
        refuse_read_only(args)
        if args.out:
            raise UsageError("--mlflow and --out cannot be combined.", todo="Use one of them.")
        print(added_to_mlflow(args.recording, how))
        return int(ExitCode.DONE)
    stem, _, document = read(args.recording)
    return save(written(document, how), how, args.out, stem)


def refuse_read_only(args: argparse.Namespace) -> None:
    from cockpit.cli.options import confirm

    confirm.refuse_read_only(args, "changes a run of MLflow")


def added_to_mlflow(recording: str, how: str = "html") -> str:
    """Add the report to the MLflow run of the recorded run. Returns a line with its page.

    Raises CockpitError if there is no server or no such run.
    """
    _, run_id, document = read(recording)
    name = f"report{ENDINGS[how]}"
    page = asyncio.run(_log(run_id, name, written(document, how)))
    return f"Added {name} to {page}"


def form(given: str | None, out: str | None) -> str:
    """Select the format: by the flag, else by the file's suffix, else HTML."""
    if given:
        return given
    ending = Path(out).suffix.lower() if out and out != "-" else ""
    found = {".htm": "html", ".markdown": "md"} | {value: key for key, value in ENDINGS.items()}
    return found.get(ending, "html")


def written(document: Document, how: str) -> str:
    if how == "md":
        from cockpit.report.markdown import markdown

        return markdown(document)
    if how == "json":
        from cockpit.report.data import data

        return json.dumps(data(document), indent=2, allow_nan=False) + "\n"
    from cockpit.report.html import html

    return html(document)


async def _log(run_id: str, name: str, text: str) -> str:
    """Add the report to the newest MLflow run of this run; its page."""
    from cockpit.sources.mlflow.source import RUN_TAGS

    client = mlflow.client()
    try:
        experiments = await client.experiments()
        for tag in RUN_TAGS if IN_QUERY.fullmatch(run_id) else ():
            for run in await client.tagged(experiments, tag, run_id):
                await client.store(run, name, text.encode())
                return run.page
    finally:
        await client.aclose()
    raise CockpitError(
        f"MLflow at {client.url} has no run for {one_line(run_id)}.",
        f"No run there has its id in a tag: {', '.join(RUN_TAGS)}.",
        "cockpit report without --mlflow writes it to a file.",
    )


def read(name: str) -> tuple[str, str, Document]:
    """What a file of the report is called, by the run's name and its recording's; the run's id,
    and the report.
    """
    from cockpit.config import file
    from cockpit.insight.metrics.prices import parse
    from cockpit.recorder.file import is_held
    from cockpit.recorder.reading.library import Library
    from cockpit.recorder.reading.recording import opened
    from cockpit.report.run_report import report
    from cockpit.store.selectors import current_run

    library = Library(paths.state_dir())
    path = library.find(name)
    with opened(path) as recording:
        store = recording.store()
        run = store.runs.get(recording.run.run_id) or current_run(store)
        if run is None:
            raise UsageError(
                f"{path.name} contains no run yet.",
                "It has no run events.",
                "cockpit recordings lists them.",
            )
        trouble = [f"The recording is damaged: {recording.damage}."] if recording.damage else []
        if recording.dropped:
            trouble.append(f"Its recorder lost {recording.dropped:,} events.")
        if run.started_s and recording.begin_s > run.started_s + 5:
            missing_s = recording.begin_s - run.started_s
            trouble.append(f"Recording began {in_seconds(missing_s, 0)} after the run started.")
        text = path.stem if run.name in path.stem else f"{run.name}-{path.stem}"
        return (
            _plain(text),
            run.id,
            report(
                store,
                run,
                past=library.summaries(),
                read_from=path.name,
                trouble=trouble,
                left=not is_held(path),
                prices=parse(file.read().tables.get("cost", {})),
            ),
        )


def save(text: str, how: str, out: str | None, stem: str) -> int:
    """Print it for `-`, or write it to a file, or under the name `stem` into a directory."""
    if out == "-":
        sys.stdout.write(text)
        return int(ExitCode.DONE)
    target = Path(out or ".").expanduser()
    if target.is_dir():
        target /= stem + ENDINGS[how]
    write(target, text)
    print("Wrote ", end="")
    links.write(str(target), target.absolute().as_uri())
    print(f" ({len(text.encode()) / 1024:,.0f} KiB)")
    return int(ExitCode.DONE)


def write(target: Path, text: str) -> None:
    """Write atomically: an existing report is kept until the new one is complete."""
    umask = os.umask(0)
    os.umask(umask)
    try:
        paths.replace_file(target, text, mode=0o666 & ~umask)
    except OSError as error:
        raise CockpitError(
            f"The report cannot be written to {target}.",
            error.strerror or str(error),
            "Name another place with --out, or - for standard output.",
        ) from error


def _plain(name: str) -> str:
    """As a file's name, from any name of a run."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:120] or "report"
