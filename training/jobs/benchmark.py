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
    print(f"written to {folder}", flush=True)
    if results.failed:
        sys.exit(f"not measured: {', '.join(results.failed)}; the report has the reasons")


def measure(settings: BenchSettings, folder: Path) -> tuple[Measured, str]:
    """The results of the ranks, then of the driver; and how the ranks were started, as text."""
    ranks = settings.ranks
    if ranks == "auto":
        ranks = "ray" if "RAY_ADDRESS" in os.environ else "processes"
    if ranks == "ray":
        run = replace(settings, run_name="", storage_path=str(folder / "ray"))
        done = fit(partial(rank_of_ray, folder=str(folder)), run, "benchmark")
        measured = Measured(**done.return_value)
        how = f"{settings.workers} ranks, started by Ray Train"
    else:
        measured = on_ranks(settings, by_ranks, settings, folder)
        how = f"{settings.workers} ranks, started as processes of one host"
    if LAUNCHERS not in chosen(settings.what):
        return measured, how
    run = replace(settings.for_this_run(), run_name="", storage_path=str(folder / "ray"))
    try:
        compared = asdict(launchers.measure(run))
    except (SystemExit, Exception) as why:  # noqa: BLE001 - reported, and the measurements are kept
        if not isinstance(why, (Lost, SystemExit)):
            traceback.print_exc()
        return Measured(measured.parts, {**measured.failed, LAUNCHERS: str(why)}), how
    return Measured({**measured.parts, LAUNCHERS: compared}, measured.failed), how


def results_folder(settings: BenchSettings) -> Path:
    """Exits if it is not a folder."""
    if "://" in settings.storage_path:
        path = settings.storage_path
        sys.exit(f"--storage-path {path}: results go to a folder that all nodes see")
    name = settings.run_name or time.strftime("benchmark-%Y%m%d-%H%M%S")
    folder = Path(settings.storage_path or "~/ray_results").expanduser().absolute() / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


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
