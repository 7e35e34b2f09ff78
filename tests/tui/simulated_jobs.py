"""A catalogue of jobs as in `training`, which only changes with the tests."""

from __future__ import annotations

from cockpit.launch.job import BundledJob, JobSetting

RUN = (
    JobSetting("workers", "int", 2, "training workers (ranks)", group="Run"),
    JobSetting("epochs", "int", 200, "passes over the data", group="Run"),
    JobSetting(
        "gpu", "str", "auto", "when there is one for each worker", ("auto", "true", "false"), "Run"
    ),
    JobSetting("stop_on_nan", "bool", True, "stop when a loss is not finite", group="Run"),
    JobSetting("storage_path", "str", "", "where checkpoints go, seen by all nodes", group="Run"),
)
DATA = (
    JobSetting("batch_size", "int", 32, "samples a rank and step", group="Data"),
    JobSetting("loader_workers", "int", 0, "processes that load data, a rank", group="Data"),
)
SPEED = (
    JobSetting(
        "precision", "str", "fp32", "of what is multiplied; weights stay as they are in any case",
        ("fp32", "tf32", "bf16", "fp16"), "Speed and memory",
    ),
    JobSetting("compile", "bool", False, "by torch.compile", group="Speed and memory"),
    JobSetting("clip_norm", "float", 1.0, "longest gradient; 0: any", group="Speed and memory"),
)  # fmt: skip
PIPELINE = (
    JobSetting("stages", "int", 2, "parts that the model is cut into", group="Pipeline"),
    JobSetting("schedule", "str", "1f1b", "of micro-batches", ("gpipe", "1f1b"), "Pipeline"),
)
JOBS = (
    BundledJob(
        "digits",
        "training.jobs.digits",
        "A small convolutional net on the digits data set, checkpointed each epoch.",
        (*RUN, *DATA, *SPEED),
    ),
    BundledJob(
        "char-gpt", "training.jobs.gpt", "A character-level transformer.", (*RUN, *DATA, *SPEED)
    ),
    BundledJob(
        "pipeline",
        "training.jobs.pipeline",
        "A model in stages, each on a rank of its own.",
        (*RUN, *DATA, *PIPELINE),
    ),
    BundledJob(
        "serve",
        "training.jobs.serve",
        "Answers from a checkpoint over HTTP.",
        (JobSetting("port", "int", 8000, "of HTTP", group="Serve"),),
    ),
)
"""`serve` has no workers, and nothing in common with the others."""


def bundled_job(name: str) -> BundledJob:
    return next(job for job in JOBS if job.name == name)
