"""Data parallelism that continues without a lost rank, while it is replaced.

    python -m training.jobs.fault_tolerant --workers 3 --epochs 20

Each rank is a replica with the whole model. When one dies, the others repeat the sum of the
gradients without it and continue: no rank restarts, and no committed step is done again. Ray Train
starts a new process for the lost replica, which receives the weights, the optimizer's state and the
position in the data from another replica's memory, and takes part from the next step on.

A step has the same examples with any number of replicas: those of a lost replica are divided among
the others. So the batch and the learning rate do not change, and until then a step takes longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from training.jobs import job
from training.jobs.fit import OnRay, fit
from training.settings import parse, setting


@dataclass(frozen=True)
class Settings(OnRay):
    workers: int = setting(
        3, "number of replicas (ranks), each with the whole model on one CPU", at_least=1
    )
    epochs: int = setting(20, "passes over the data")
    gpu: str = setting("false", "use GPUs; replicas use gloo, on CPUs only", ("false",))
    timeout_s: float = setting(
        60.0,
        "seconds until a replica that does not respond is left out; more than a step, or an "
        "evaluation, takes",
        at_least=1,
    )
    max_failures: int = setting(100, "replacements of replicas before the run fails; -1: unlimited")


UNUSED = (
    *("comm_hook", "hierarchical", "bucket_mb", "static_graph", "compile", "channels_last"),
    *("activation_checkpointing", "attention", "mlflow", "register_as", "loader_workers"),
    "memory_every_steps",
)
"""Settings that this job does not have the code for."""


def train_on_ray(config: dict[str, Any]) -> dict[str, Any]:
    from training.replicas.on_ray import work

    return work(Settings(**config))


def check(settings: Settings) -> None:
    """Exits with a message if a setting is not supported."""
    defaults = Settings()
    changed = [name for name in UNUSED if getattr(settings, name) != getattr(defaults, name)]
    if settings.precision == "fp16":
        changed.append("precision=fp16")
    if settings.checkpoint_every != "epoch":
        changed.append("checkpoint_every=auto")
    if changed:
        raise SystemExit(
            f"fault_tolerant does not support {', '.join(changed)}: leave "
            f"{'it' if len(changed) == 1 else 'them'} out, or use the job checkpointed"
        )


def main() -> None:
    settings = parse(
        Settings, "python -m training.jobs.fault_tolerant", job("fault_tolerant").summary
    )
    check(settings)
    from training.replicas.on_ray import ReplicaConfig

    fit(
        train_on_ray,
        settings,
        "fault_tolerant",
        ReplicaConfig(backend="gloo", timeout_s=int(settings.timeout_s)),
    )


if __name__ == "__main__":
    main()
