"""docs/training.md has the jobs and the settings that there are."""

from __future__ import annotations

import pytest

from cockpit.launch.job import BundledJob, JobSetting
from tests.launch.settings_table import PAGE, of_settings, tables
from tests.page import between


@pytest.mark.parametrize("name", list(tables()))
def test_a_table_of_the_page_is_what_the_catalogue_has(name: str) -> None:
    found = between(PAGE.read_text(encoding="utf-8"), name)
    assert found == tables()[name], "python -m tests.launch.settings_table writes it"


def test_a_group_is_told_once_with_what_a_job_has_otherwise() -> None:
    def workers(default: int) -> JobSetting:
        return JobSetting("workers", "int", default, "ranks", group="Run")

    precision = JobSetting("precision", "str", "fp32", "of sums", ("fp32", "bf16"), "Run")
    stages = JobSetting("stages", "int", 2, "parts | cuts", group="Pipeline")
    jobs = [
        BundledJob("baseline", "m", "s", (precision,)),
        BundledJob("ddp", "m", "s", (workers(2), precision)),
        BundledJob("tune", "m", "s", (workers(2), precision)),
        BundledJob("pipeline", "m", "s", (workers(4), precision, stages)),
    ]
    assert of_settings(jobs).splitlines() == [
        "**Run**, of all jobs",
        "",
        "| setting | default | is | one of |",
        "| --- | --- | --- | --- |",
        "| `precision` | `fp32` | of sums | `fp32`, `bf16` |",
        "| `workers` | `2`; `pipeline` `4` | ranks (not of `baseline`) |  |",
        "",
        "**Pipeline**, of `pipeline`",
        "",
        "| setting | default | is |",
        "| --- | --- | --- |",
        "| `stages` | `2` | parts \\| cuts |",
    ]
