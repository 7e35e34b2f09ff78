"""The verdict on ends of real processes: recorded ones, and new ones in the nightly lane."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.backends.local import GroupSpec
from cockpit.insight.causes.types import Category, Cause, Confidence
from tests.causes import real
from tests.causes.real import (
    DRIVERS,
    ONCE,
    OTHER_JOBS,
    RECORDED,
    UNSURE,
    Ends,
    label_of,
    recorded_cause,
)
from tests.local_cluster import running_cluster

QUICK_TRAIN = {"exception": Category.USER, "killed": Category.KILLED}
QUICK_DRIVERS = {"missing-data": Category.DATA, "crash": Category.KILLED}


def has_cause(cause: Cause, label: Category) -> None:
    right = {label, Category.UNKNOWN} if label in UNSURE else {label}
    assert cause.category in right, cause
    sure = cause.confidence is not Confidence.LOW
    assert sure == (label not in UNSURE), cause


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.jsonl")), ids=lambda path: path.stem)
def test_recorded_end_gets_its_cause(path: Path) -> None:
    cause = recorded_cause(path)
    has_cause(cause, label_of(path))
    if path.stem.startswith("train.") and path.stem != "train.timeout":
        assert cause.ranks == (1,)


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ends]:
    groups = [GroupSpec("workers", replicas=2, min=0, max=2)]
    with running_cluster("causes", groups) as backend:
        yield real.made(backend, tmp_path_factory.mktemp("causes"), QUICK_TRAIN, QUICK_DRIVERS)


@pytest.mark.nightly  # the recorded ends of the same processes: the first test
@pytest.mark.ray
@pytest.mark.parametrize("name", QUICK_TRAIN)
def test_run_of_ray_train_gets_its_cause(name: str, ends: Ends) -> None:
    has_cause(ends.of_train(name), QUICK_TRAIN[name])


@pytest.mark.nightly  # the recorded ends of the same processes: the first test
@pytest.mark.ray
@pytest.mark.parametrize("name", QUICK_DRIVERS)
def test_driver_gets_its_cause(name: str, ends: Ends) -> None:
    has_cause(ends.of_job(f"driver-{name}"), QUICK_DRIVERS[name])


@pytest.mark.nightly  # the recorded ends of the same processes: the first test
@pytest.mark.ray
@pytest.mark.parametrize("name", OTHER_JOBS)
def test_job_without_driver_code_gets_its_cause(name: str, ends: Ends) -> None:
    has_cause(ends.of_job(name), OTHER_JOBS[name])


def test_every_scenario_is_recorded() -> None:
    wanted = {f"train.{name}" for name in real.TRAIN}
    wanted |= {f"driver.{name}" for name in DRIVERS}
    wanted |= {f"job.{name}" for name in OTHER_JOBS | ONCE}
    assert {path.stem for path in RECORDED.glob("*.jsonl")} >= wanted
