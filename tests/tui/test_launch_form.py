"""The input of a launch: kept by job, only changed settings are sent, invalid ones are marked."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cockpit.tui.commands.launch_form import Head, LaunchForm, Line
from tests.tui.simulated_jobs import JOBS


@pytest.fixture
def form() -> LaunchForm:
    return LaunchForm(JOBS, "digits")


def heads(form: LaunchForm, text: str = "") -> list[tuple[str, int, int, bool]]:
    return [
        (line.title, line.count, line.changed, line.is_open)
        for line in form.lines(text)
        if isinstance(line, Head)
    ]


def names(form: LaunchForm, text: str = "") -> list[str]:
    return [line.setting.name for line in form.lines(text) if isinstance(line, Line)]


def test_the_run_and_what_is_the_jobs_own_are_open_and_the_rest_counts_its_changes(
    form: LaunchForm,
) -> None:
    form.put("compile", "true")
    assert heads(form) == [
        ("Run", 5, 0, True), ("Data", 2, 0, False), ("Speed and memory", 3, 1, False),
    ]  # fmt: skip
    form.chosen = "pipeline"
    assert heads(form) == [("Pipeline", 2, 0, True), ("Run", 5, 0, True), ("Data", 2, 0, False)]
    form.toggle("Data")
    form.toggle("Run")
    assert names(form) == ["stages", "schedule", "batch_size", "loader_workers"]
    form.chosen = "serve"
    assert heads(form) == [("Serve", 1, 0, True)]


def test_only_what_differs_from_the_default_is_sent_however_it_is_written(
    form: LaunchForm,
) -> None:
    form.put("clip_norm", "1")
    form.put("stop_on_nan", "yes")
    form.put("workers", " 4 ")
    form.put("storage_path", "/store")
    assert form.changed == {"workers": "4", "storage_path": "/store"}
    form.put("workers", "")
    form.put("storage_path", "")
    assert form.changed == {}


def test_each_job_keeps_what_was_typed_for_it(form: LaunchForm) -> None:
    form.put("workers", "4")
    form.chosen = "char-gpt"
    assert form.changed == {}
    form.put("epochs", "9")
    form.chosen = "digits"
    assert form.changed == {"workers": "4"}


def test_invalid_settings_are_reported_in_the_displayed_order(form: LaunchForm) -> None:
    form.chosen = "pipeline"
    form.put("batch_size", "many")
    form.put("stages", "2.5")
    assert [setting.name for setting in form.wrong] == ["stages", "batch_size"]
    [line] = [one for one in form.lines() if isinstance(one, Line) and one.complaint]
    assert (line.text, line.complaint) == ("2.5", "is not a whole number")
    assert form.changed == {"stages": "2.5", "batch_size": "many"}
    form.reveal("batch_size")
    assert "batch_size" in names(form)


def test_settings_are_found_by_their_names_help_and_choices(form: LaunchForm) -> None:
    assert names(form, "bf16") == ["precision"]
    assert names(form, "loader-work") == ["loader_workers"]
    assert names(form, "gradient LONGEST") == ["clip_norm"]
    assert heads(form, "rank") == [("Run", 1, 0, True), ("Data", 2, 0, True)]
    assert form.lines("nonsense") == []
    assert [job.name for job in form.found("trans")] == ["char-gpt"]


def test_the_likeliest_comes_first(form: LaunchForm) -> None:
    assert form.best_match("batch") == "batch_size"
    assert form.best_match("worker") == "workers"
    assert form.best_match("loader") == "loader_workers"
    assert form.best_match("nonsense") == ""
    plain, torchrun = replace(JOBS[0], name="ddp"), replace(JOBS[0], name="ddp_torchrun")
    named = LaunchForm((torchrun, replace(JOBS[1], summary="like ddp"), plain), "ddp")
    assert [job.name for job in named.found("ddp")] == ["ddp", "ddp_torchrun", "char-gpt"]


def test_choices_cycle(form: LaunchForm) -> None:
    [line] = [one for one in form.lines("precision") if isinstance(one, Line)]
    assert (line.another(1), line.another(-1)) == ("tf32", "fp16")
    form.put("precision", "wrong")
    [line] = [one for one in form.lines("precision") if isinstance(one, Line)]
    assert (line.another(1), line.another(-1)) == ("fp32", "fp16")
    [number] = [one for one in form.lines("clip_norm") if isinstance(one, Line)]
    assert number.another(1) == ""
