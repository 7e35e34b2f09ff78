"""What the benchmark is asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace

from training.jobs.fit import OnRay
from training.settings import setting


@dataclass(frozen=True)
class BenchSettings(OnRay):
    """Benchmark"""

    what: str = setting("all", "parts, with commas between; all: each that fits the machine")
    quick: bool = setting(False, "a few steps of each, to test the measurement itself")
    ranks: str = setting(
        "auto",
        "started by Ray Train, or as processes of this host; auto: ray within a job of a cluster",
        ("auto", "ray", "processes"),
    )
    rounds: int = setting(9, "how often each of what is compared has its turn")
    turn_steps: int = setting(20, "steps of a turn")
    cores_each: int = setting(1, "without GPUs: cores and threads of a rank when worlds compare")
    memory_mb: int = setting(1024, "without a GPU: memory up to which batches grow")
    run_name: str = setting("", "folder of the results within storage_path; '': by the time")
    max_failures: int = setting(0, "restarts before the run fails; -1: without end")
    when_lacking: str = setting(
        "fail", "when the cluster has too little for all workers", ("wait", "fail")
    )
    timeout_s: float = setting(
        3600.0, "until a collective that does not end is an error", at_least=1
    )

    def for_this_run(self) -> BenchSettings:
        """With fewer and shorter turns when it is quick; without what a measurement must not do."""
        trained = replace(
            self, epochs=1, max_steps=0, schedule="constant", warmup_steps=0, mlflow=""
        )
        # On one batch a model soon has nothing left to learn, and a CPU takes several times as
        # long for gradients so small that they are subnormal. At a rate of 0 all steps are alike.
        trained = replace(trained, learning_rate=0.0)
        if not self.quick:
            return trained
        return replace(trained, rounds=2, turn_steps=3, memory_mb=min(self.memory_mb, 64))
