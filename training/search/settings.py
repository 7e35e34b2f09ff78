"""What a search asks for."""

from __future__ import annotations

from dataclasses import dataclass

from training.settings import setting

METRICS = {"accuracy": "max", "held_out_loss": "min", "loss": "min"}
"""Those that a trial reports, and which of two is better."""


@dataclass(frozen=True)
class SearchSettings:
    """Search"""

    space: str = setting(
        "learning_rate=log(1e-4,1e-1) batch_size=choice(8,16,32,64) dropout=uniform(0,0.5)",
        "settings to draw, each by choice(A,B,…), uniform(A,B) or log(A,B)",
    )
    samples: int = setting(8, "trials")
    metric: str = setting("accuracy", "what is best, on examples not trained on", tuple(METRICS))
    scheduler: str = setting("asha", "who goes on", ("none", "asha", "hyperband", "median", "pbt"))
    grace_epochs: int = setting(1, "asha, median: no trial is stopped before")
    reduction: int = setting(3, "asha, hyperband: one in so many goes on")
    exploit_every_epochs: int = setting(5, "pbt: the worst take over weights of the best so often")
    max_parallel: int = setting(0, "trials at a time; 0: as many as the cluster has room for")
    placement: str = setting("pack", "ranks of a trial on few nodes or on many", ("pack", "spread"))
