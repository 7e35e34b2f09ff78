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


def test_settings_table_lists_each_group_once_with_the_differences_of_jobs() -> None:
    def workers(default: int) -> JobSetting:
        return JobSetting("workers", "int", default, "ranks", group="Run")

    precision = JobSetting("precision", "str", "fp32", "of sums", ("fp32", "bf16"), "Run")
    stages = JobSetting("stages", "int", 2, "parts | cuts", group="Pipeline", at_least=1)
    jobs = [
        BundledJob("baseline", "m", "s", (precision,)),
        BundledJob("ddp", "m", "s", (workers(2), precision)),
        BundledJob("tune", "m", "s", (workers(2), precision)),
        BundledJob("pipeline", "m", "s", (workers(4), precision, stages)),
    ]
    assert of_settings(jobs).splitlines() == [
        "**Run** (all jobs)",
        "",
        "| setting | default | description | allowed values |",
        "| --- | --- | --- | --- |",
        "| `precision` | `fp32` | of sums | `fp32`, `bf16` |",
        "| `workers` | `2`; `4` for `pipeline` | ranks (not for `baseline`) | integer |",
        "",
        "**Pipeline** (`pipeline`)",
        "",
        "| setting | default | description | allowed values |",
        "| --- | --- | --- | --- |",
        "| `stages` | `2` | parts \\| cuts | integer, 1 or more |",
    ]
