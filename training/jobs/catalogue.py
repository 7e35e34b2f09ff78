"""The jobs and their settings as a file, for a launcher that imports neither torch nor ray."""

from __future__ import annotations

import importlib
import json
from dataclasses import asdict
from pathlib import Path

from training.jobs import JOBS, SETTINGS
from training.settings import describe

FILE = Path(__file__).with_name("catalogue.json")


def render() -> str:
    """The text of catalogue.json. Imports every job."""
    jobs = [
        asdict(job)
        | {
            "settings": [
                asdict(item)
                for item in describe(getattr(importlib.import_module(job.module), SETTINGS))
            ]
        }
        for job in JOBS
    ]
    return json.dumps(jobs, indent=2, ensure_ascii=False) + "\n"
