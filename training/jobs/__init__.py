"""The bundled jobs. Light to import: what a job needs is imported when it runs.

`catalogue.json` beside this file says the same to those who cannot import it;
`python -m training.jobs` writes it anew.
"""

from __future__ import annotations

from dataclasses import dataclass

SETTINGS = "Settings"
"""The name of the settings' dataclass in a job's module."""


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    module: str
    summary: str


JOBS = (
    Job(
        "baseline",
        "training.jobs.baseline",
        "One process: what every other job is compared with.",
    ),
    Job(
        "ddp_torchrun",
        "training.jobs.ddp_torchrun",
        "DDP by torchrun, which starts the ranks again when one dies.",
    ),
    Job(
        "checkpointed",
        "training.jobs.checkpointed",
        "DDP on small digits, which resumes exactly where it was killed.",
    ),
    Job(
        "ddp",
        "training.jobs.ddp",
        "The plain one on Ray Train: DDP, and a checkpoint each epoch.",
    ),
    Job(
        "elastic",
        "training.jobs.elastic",
        "DDP with as many workers as there are, from a least to a most.",
    ),
    Job(
        "fsdp2",
        "training.jobs.fsdp2",
        "FSDP2: the model in parts, one a rank; resumes with any number.",
    ),
    Job(
        "deepspeed",
        "training.jobs.deepspeed",
        "ZeRO 1 to 3 by DeepSpeed, for teams that have it.",
    ),
    Job(
        "pipeline",
        "training.jobs.pipeline",
        "The model's blocks in stages, one a rank: GPipe or 1F1B.",
    ),
    Job(
        "ray_data",
        "training.jobs.ray_data",
        "DDP whose examples Ray Data loads, on any node, and streams.",
    ),
    Job(
        "tune",
        "training.jobs.tune",
        "A search for good settings: ASHA, HyperBand, medians or PBT.",
    ),
    Job(
        "serve",
        "training.jobs.serve",
        "A run's newest checkpoint behind HTTP, by Ray Serve.",
    ),
    Job(
        "benchmark",
        "training.jobs.benchmark",
        "What scales, what waits, and what to do about it: a report.",
    ),
)


def job(name: str) -> Job:
    """Raises KeyError when there is none of that name."""
    return {item.name: item for item in JOBS}[name]
