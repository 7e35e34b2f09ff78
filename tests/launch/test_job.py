from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from cockpit.launch import job as job_module
from cockpit.launch.job import BundledJob, JobSetting, bundled_job, bundled_jobs, flags, groups
from cockpit.model.error import UsageError

WORKERS = JobSetting("workers", "int", 2, "ranks", group="Run")
RATE = JobSetting("learning_rate", "float", 0.002, "its peak", group="Optimiser")
PRECISION = JobSetting("precision", "str", "fp32", "of sums", ("fp32", "bf16"), "Speed")
NAN = JobSetting("stop_on_nan", "bool", True, "stop at one", group="Run")
SMOOTHING = JobSetting("smoothing", "float", 0.0, "of targets", at_least=0.0, at_most=1.0)
BATCH = JobSetting("batch_size", "int", 16, "examples", at_least=1.0)
STAGES = JobSetting("stages", "int", 2, "parts of the model", group="Pipeline")
DDP = BundledJob("ddp", "m.ddp", "s", (WORKERS, NAN, RATE, PRECISION))
PIPELINE = BundledJob("pipeline", "m.pipeline", "s", (WORKERS, RATE, PRECISION, STAGES))


@pytest.mark.parametrize(
    ("setting", "text", "complaint"),
    [
        (WORKERS, "3", ""),
        (WORKERS, "3.5", "is not a whole number"),
        (WORKERS, "", "is not a whole number"),
        (RATE, "1e-3", ""),
        (RATE, "small", "is not a number"),
        (SMOOTHING, "1", ""),
        (SMOOTHING, "1.1", "is not 0 to 1"),
        (SMOOTHING, "nan", "is not 0 to 1"),
        (BATCH, "0", "is not 1 or more"),
        (RATE, "nan", ""),
        (NAN, "No", ""),
        (NAN, "maybe", "is not true or false"),
        (PRECISION, "bf16", ""),
        (PRECISION, "BF16", "is not one of its choices: did you mean bf16?"),
        (PRECISION, "int4", "is not one of its choices"),
    ],
)
def test_value_has_the_type_and_choices_of_its_setting(
    setting: JobSetting, text: str, complaint: str
) -> None:
    assert setting.complaint(text) == complaint


@pytest.mark.parametrize(
    ("setting", "texts"),
    [(RATE, ("0.002", "2e-3")), (NAN, ("true", "Yes", "1")), (WORKERS, ("2", "02"))],
)
def test_a_default_is_one_however_it_is_written(setting: JobSetting, texts: tuple[str]) -> None:
    assert setting.default_text == texts[0]
    assert all(setting.is_default(text) for text in texts)
    assert not setting.is_default("0")
    assert not setting.is_default("wrong")


def test_wrong_choice_is_reported_with_the_valid_ones() -> None:
    with pytest.raises(UsageError) as raised:
        flags(DDP, {"precision": "bf61"})
    assert raised.value.what == "precision=bf61 is not one of its choices: did you mean bf16?"
    assert raised.value.why == "ddp: precision: one of fp32, bf16"
    assert flags(DDP, {"learning-rate": "-1"}) == ("--learning-rate=-1",)


def test_mistyped_setting_is_not_answered_with_all_of_many_settings() -> None:
    many = tuple(JobSetting(f"setting_{n}", "int", 0, "h") for n in range(60))
    with pytest.raises(UsageError) as raised:
        BundledJob("big", "m", "s", many).setting("seting-7")
    assert "did you mean setting_7?" in raised.value.what
    assert len(str(raised.value)) < 200
    assert "cockpit launch big --list" in raised.value.todo


def test_what_few_jobs_have_comes_first_and_with_the_run_is_looked_at_before_a_launch() -> None:
    found = groups(PIPELINE, (DDP, PIPELINE))
    assert [(group.title, group.is_main) for group in found] == [
        ("Pipeline", True), ("Run", True), ("Optimiser", False), ("Speed", False),
    ]  # fmt: skip
    many = [replace(DDP, name=f"ddp-{n}") for n in range(8)]
    shared = groups(PIPELINE, (PIPELINE, replace(PIPELINE, name="zero-bubble"), *many))
    assert [group.title for group in shared if group.is_main] == ["Pipeline", "Run"]
    alone = groups(PIPELINE, (PIPELINE,))
    assert [group.title for group in alone if group.is_main] == ["Run"]


def test_the_catalogue_reports_choices_and_groups() -> None:
    checkpointed = bundled_job("checkpointed")
    assert checkpointed.summary
    assert checkpointed.setting("learning-rate").type == "float"
    assert "bf16" in checkpointed.setting("precision").choices
    assert checkpointed.setting("epochs").group == "Run"
    assert [job.name for job in bundled_jobs()].count("checkpointed") == 1


def test_a_catalogue_without_choices_and_groups_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = {"name": "epochs", "type": "int", "default": 3, "help": "passes"}
    job = {"name": "old", "module": "m", "summary": "s", "settings": [setting]}
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "catalogue.json").write_text(json.dumps([job]))
    monkeypatch.setattr(job_module, "training_directory", lambda: tmp_path)
    [old] = bundled_jobs()
    assert old.settings == (JobSetting("epochs", "int", 3, "passes"),)
    assert [group.title for group in groups(old, (old,))] == ["Settings"]


def test_every_default_of_every_job_is_one_that_it_takes() -> None:
    for job in bundled_jobs():
        for setting in job.settings:
            assert setting.is_default(setting.default_text), f"{job.name}: {setting.name}"
