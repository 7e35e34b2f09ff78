"""Two runs of MLflow beside each other, and many in a list."""

from __future__ import annotations

import math

from cockpit.insight.metrics.tracked_runs import (
    compared,
    differing,
    metrics_line,
    parameters,
    parameters_line,
    took_s,
)
from cockpit.model.tracking import TrackedRun

FIRST = TrackedRun(
    "a1", "first", "digits", "FINISHED", 100.0, 160.0,
    params={"lr": "0.1", "width": "64", "api_key": "sesame"},
    metrics={"loss": 0.5, "accuracy": 0.75, "odd": math.nan},
)  # fmt: skip
SECOND = TrackedRun(
    "b2", "second", "digits", "RUNNING", 200.0,
    params={"lr": "0.2", "width": "64", "depth": "3"},
    metrics={"loss": 0.25, "accuracy": 0.75, "f1": 0.5},
)  # fmt: skip


def test_what_differs_comes_first_with_the_difference_of_numbers() -> None:
    found = compared(FIRST, SECOND)
    metrics = [(row.name, row.first, row.second, row.difference) for row in found.metrics]
    assert metrics[0] == ("f1", "", "0.500000", "")
    assert metrics[1] == ("loss", "0.500000", "0.250000", "-0.2500")
    assert metrics[2] == ("odd", "NaN", "", "")
    assert metrics[3][0] == "accuracy"
    assert not found.metrics[3].differs
    assert [row.name for row in found.parameters] == ["api_key", "depth", "lr", "width"]


def test_secret_parameters_are_masked_everywhere() -> None:
    shown = parameters(FIRST) | {row.name: row.first for row in compared(FIRST, SECOND).parameters}
    assert "sesame" not in "".join(shown.values())
    assert "sesame" not in parameters_line(FIRST, ["api_key"])


def test_list_names_only_parameters_that_differ() -> None:
    assert differing([FIRST, SECOND]) == ["api_key", "depth", "lr"]
    assert differing([FIRST]) == []
    assert parameters_line(SECOND, ["depth", "lr", "api_key"]) == "depth=3 lr=0.2"
    assert metrics_line(FIRST, 2) == "loss=0.5000 accuracy=0.7500 …"


def test_duration_of_a_run_without_an_end_counts_only_while_it_runs() -> None:
    assert took_s(FIRST, 1_000.0) == 60.0
    assert took_s(SECOND, 1_000.0) == 800.0
    assert took_s(TrackedRun("c", "", "", "KILLED", 5.0), 1_000.0) is None
    assert took_s(TrackedRun("d", "", "", "SCHEDULED"), 1_000.0) is None
