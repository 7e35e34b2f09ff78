"""The trials of Ray Tune's result."""

from __future__ import annotations

from typing import Any

from training.search.best import TrialResult


def tried(results: Any) -> list[TrialResult]:
    """`results`: ray.tune.ResultGrid, of trials whose folders are named by their ids."""
    return [
        TrialResult(
            id=result.path.rpartition("/")[2],
            config=result.config or {},
            metrics=result.metrics or {},
            checkpoint=result.checkpoint.path if result.checkpoint else "",
            error=_last_line(result.error),
        )
        for result in results
    ]


def _last_line(error: BaseException | None) -> str:
    lines = [line.strip() for line in str(error or "").splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__ if error else ""
