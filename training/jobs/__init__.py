"""The bundled jobs. Light to import: what a job needs is imported when it runs.

`catalogue.json` in this folder has the same content for programs that cannot import it; `python -m
training.jobs` writes it.
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
        "Single process, the reference for comparisons.",
    ),
    Job(
        "ddp_torchrun",
        "training.jobs.ddp_torchrun",
        "DDP with torchrun, which restarts all ranks when one fails.",
    ),
    Job(
        "checkpointed",
        "training.jobs.checkpointed",
        "DDP for failure tests; resumes exactly, and can be elastic.",
    ),
    Job(
        "ddp",
        "training.jobs.ddp",
        "DDP with Ray Train; a checkpoint at the end of each epoch.",
    ),
    Job(
        "elastic",
        "training.jobs.elastic",
        "DDP with a minimum and a maximum number of workers.",
    ),
    Job(
        "fault_tolerant",
        "training.jobs.fault_tolerant",
        "Replicas that continue when one is lost; it heals from a peer.",
    ),
    Job(
        "fsdp2",
        "training.jobs.fsdp2",
        "FSDP2: sharded model; resumes with any number of ranks.",
    ),
    Job(
        "deepspeed",
        "training.jobs.deepspeed",
        "ZeRO stages 1 to 3 with DeepSpeed.",
    ),
    Job(
        "pipeline",
        "training.jobs.pipeline",
        "Pipeline parallelism with one stage per rank: GPipe or 1F1B.",
    ),
    Job(
        "ray_data",
        "training.jobs.ray_data",
        "DDP with examples that Ray Data loads on any node.",
    ),
    Job(
        "tune",
        "training.jobs.tune",
        "Hyperparameter search with Ray Tune: ASHA, HyperBand, PBT.",
    ),
    Job(
        "serve",
        "training.jobs.serve",
        "HTTP server for the newest checkpoint of a run, with Ray Serve.",
    ),
    Job(
        "benchmark",
        "training.jobs.benchmark",
        "Report on scaling, communication, data and checkpoints.",
    ),
)


def job(name: str) -> Job:
    """Raises KeyError for an unknown name."""
    return {item.name: item for item in JOBS}[name]
