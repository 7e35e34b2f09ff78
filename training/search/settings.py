"""The settings of a search."""

from __future__ import annotations

from dataclasses import dataclass

from training.settings import setting

METRICS = {"accuracy": "max", "held_out_loss": "min", "loss": "min"}
"""The metrics that a trial reports, and whether higher or lower is better."""


@dataclass(frozen=True)
class SearchSettings:
    """Search"""

    space: str = setting(
        "learning_rate=log(1e-4,1e-1) batch_size=choice(8,16,32,64) dropout=uniform(0,0.5)",
        "settings to sample, each from choice(A,B,…), uniform(A,B) or log(A,B)",
    )
    samples: int = setting(8, "number of trials")
    metric: str = setting("accuracy", "metric to optimize, on held-out examples", tuple(METRICS))
    scheduler: str = setting(
        "asha", "scheduler that stops trials early", ("none", "asha", "hyperband", "median", "pbt")
    )
    grace_epochs: int = setting(1, "asha, median: epochs before a trial can be stopped")
    reduction: int = setting(3, "asha, hyperband: reduction factor")
    exploit_every_epochs: int = setting(5, "pbt: epochs between exploiting the best trials")
    max_parallel: int = setting(
        0, "maximum number of simultaneous trials; 0: limited by resources only"
    )
