"""Measure training on the available hosts: scaling, communication, data, checkpoints, techniques.

    python -m training.jobs.benchmark --workers 2 --quick
    python -m training.jobs.benchmark --workers 8 --what scaling,communication --model resnet50 \\
        --data synthetic --batch-size 128

Prints a report, and writes it to a folder with its plots, results.json and notebook.ipynb.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from training.bench import launchers
from training.bench.environment import Environment, machine
from training.bench.launchers import Lost
from training.bench.notebook import notebook
from training.bench.plot import svg
from training.bench.ranks import on_ranks
from training.bench.record import decode
from training.bench.report import markdown
from training.bench.results import Results
from training.bench.run import (
    ENVIRONMENT,
    LAUNCHERS,
    SO_FAR,
    Measured,
    by_ranks,
    chosen,
    sections,
)
from training.bench.settings import BenchSettings
from training.checkpoint.filesystem import absolute, is_address, joined, located, probe, shown
from training.jobs import job
from training.jobs.fit import fit
from training.loop.world import on_ray
from training.settings import parse
from training.stop import Stop


@dataclass(frozen=True)
class Settings(BenchSettings):
    pass


def rank_of_ray(config: dict[str, Any], folder: str) -> dict[str, Any]:
    return vars(by_ranks(on_ray(), BenchSettings(**config), Path(folder)))


def main() -> None:
    settings = parse(Settings, "python -m training.jobs.benchmark", job("benchmark").summary)
    try:
        chosen(settings.what)
    except ValueError as why:
        sys.exit(f"--what {settings.what}: {why}")
    try:
        probe(settings.storage_path)
    except Stop as why:
        sys.exit(f"stopped: {why}")
    folder = results_folder(settings)
    began, began_at = time.monotonic(), datetime.now(UTC)
    try:
        measured, how = measure(settings, folder)
    except Stop as why:
        sys.exit(f"stopped: {why}")
    results = Results(
        machine=machine(decode(Environment, json.loads(json.dumps(measured.parts[ENVIRONMENT])))),
        began_at=began_at.isoformat(timespec="seconds"),
        took_s=time.monotonic() - began,
        how=how,
        quick=settings.quick,
        settings=asdict(settings),
        parts=measured.parts,
        failed=measured.failed,
    )
    print(written(results, folder), flush=True)
    print(f"written to {uploaded(settings, folder)}", flush=True)
    if results.failed:
        sys.exit(f"not measured: {', '.join(results.failed)}; the report has the reasons")


def measure(settings: BenchSettings, folder: Path) -> tuple[Measured, str]:
    """The results of the ranks, then of the driver; and how the ranks were started, as text."""
    ranks = settings.ranks
    if ranks == "auto":
        ranks = "ray" if "RAY_ADDRESS" in os.environ else "processes"
    if ranks == "ray":
        run = replace(settings, run_name="", storage_path=of_ray(settings, folder))
        done = fit(partial(rank_of_ray, folder=str(folder)), run, "benchmark")
        measured = Measured(**done.return_value)
        how = f"{settings.workers} ranks, started by Ray Train"
    else:
        measured = on_ranks(settings, by_ranks, settings, folder)
        how = f"{settings.workers} ranks, started as processes of one host"
    if LAUNCHERS not in chosen(settings.what):
        return measured, how
    run = replace(settings.for_this_run(), run_name="", storage_path=of_ray(settings, folder))
    try:
        compared = asdict(launchers.measure(run))
    except (SystemExit, Exception) as why:  # noqa: BLE001 - reported, and the measurements are kept
        if not isinstance(why, (Lost, SystemExit)):
            traceback.print_exc()
        return Measured(measured.parts, {**measured.failed, LAUNCHERS: str(why)}), how
    return Measured({**measured.parts, LAUNCHERS: compared}, measured.failed), how


def results_folder(settings: BenchSettings) -> Path:
    """Of the results on this host; with an object store, they are uploaded from there."""
    name = settings.run_name or time.strftime("benchmark-%Y%m%d-%H%M%S")
    is_folder = settings.storage_path and not is_address(settings.storage_path)
    folder = Path(absolute(settings.storage_path if is_folder else "~/ray_results")) / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def of_ray(settings: BenchSettings, folder: Path) -> str:
    """The storage path of the runs that are measured."""
    if is_address(settings.storage_path):
        return joined(settings.storage_path, f"{folder.name}/ray")
    return str(folder / "ray")


def uploaded(settings: BenchSettings, folder: Path) -> str:
    """Copy the results to an object store, if there is one; returns where they are."""
    if not is_address(settings.storage_path):
        return str(folder)
    filesystem, path = located(joined(settings.storage_path, folder.name))
    for file in sorted(item for item in folder.iterdir() if item.is_file()):
        with filesystem.open_output_stream(f"{path}/{file.name}") as stream:
            stream.write(file.read_bytes())
    return shown(filesystem, path)


def written(results: Results, folder: Path) -> str:
    """Write all files of the results; returns the report."""
    results.write(folder / "results.json")
    (folder / SO_FAR).unlink(missing_ok=True)
    by_part = sections(json.loads(json.dumps(dict(results.parts))))
    plots = [plot for section in by_part.values() for plot in section.plots]
    for plot in plots:
        (folder / f"{plot.name}.svg").write_text(svg(plot))
    names = [f"{plot.name}.svg" for plot in plots]
    (folder / "notebook.ipynb").write_text(notebook(list(results.parts), names))
    report = markdown(results, by_part)
    (folder / "report.md").write_text(report)
    return report


if __name__ == "__main__":
    main()
