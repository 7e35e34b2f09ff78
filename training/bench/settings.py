"""The settings of the benchmark."""

from __future__ import annotations

from dataclasses import dataclass, replace

from training.jobs.fit import OnRay
from training.settings import setting


@dataclass(frozen=True)
class BenchSettings(OnRay):
    """Benchmark"""

    what: str = setting("all", "parts, separated by commas; all: each that the machine supports")
    quick: bool = setting(False, "run a few steps of each part, to test the measurement itself")
    ranks: str = setting(
        "auto",
        "start ranks with Ray Train or as local processes; auto: ray within a job on a cluster",
        ("auto", "ray", "processes"),
    )
    rounds: int = setting(9, "number of rounds of each comparison")
    turn_steps: int = setting(20, "steps in a round")
    cores_each: int = setting(
        1, "without GPUs: cores and threads of a rank when worlds are compared"
    )
    memory_mb: int = setting(1024, "without a GPU: memory limit for growing batches")
    run_name: str = setting(
        "", "directory of the results in storage_path; empty: named by the time"
    )
    max_failures: int = setting(0, "restarts before the run fails; -1: unlimited")
    when_lacking: str = setting(
        "fail", "wait or fail if the cluster lacks resources for all workers", ("wait", "fail")
    )
    timeout_s: float = setting(
        3600.0, "seconds until an unfinished collective is an error", at_least=1
    )

    def for_this_run(self) -> BenchSettings:
        """Shorter and fewer turns if `quick`; without options that a measurement must not have."""
        trained = replace(
            self, epochs=1, max_steps=0, schedule="constant", warmup_steps=0, mlflow=""
        )
        # On one batch a model soon has nothing left to learn, and a CPU takes several times as long
        # for gradients so small that they are subnormal. With a learning rate of 0 all steps are
        # alike.
        trained = replace(trained, learning_rate=0.0)
        if not self.quick:
            return trained
        return replace(trained, rounds=2, turn_steps=3, memory_mb=min(self.memory_mb, 64))
