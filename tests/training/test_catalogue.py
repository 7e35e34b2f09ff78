"""The catalogue of jobs and the command line that their settings make."""

from __future__ import annotations

import importlib
import subprocess
import sys
from dataclasses import dataclass

import pytest

from training.jobs import JOBS, SETTINGS, Job, job
from training.jobs.catalogue import FILE, render
from training.settings import Setting, describe, parse, setting


@dataclass(frozen=True)
class Settings:
    """Run"""

    batch_size: int = setting(16, "examples a step", at_least=1)
    learning_rate: float = setting(0.1, "the peak")
    stop_on_nan: bool = setting(True, "whether to stop")
    path: str = setting("", "where")


@dataclass(frozen=True)
class Own(Settings):
    """The job's own. More of it."""

    batch_size: int = setting(32, "examples a step of all ranks", at_least=1)
    schedule: str = setting("1f1b", "of micro-batches", ("gpipe", "1f1b"))
    share: float = setting(0.5, "of memory", at_least=0.0, at_most=1.0)


def test_the_catalogue_agrees_with_the_jobs() -> None:
    assert FILE.read_text() == render(), "write it anew with: python -m training.jobs"


def test_the_list_of_jobs_is_light_to_import() -> None:
    program = (
        "import sys, training.jobs;"
        "print([m for m in ('ray', 'torch', 'numpy', 'argparse') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_setting_reports_its_group_its_choices_and_its_range() -> None:
    reported = {item.name: item for item in describe(Own)}
    help_text = "examples a step of all ranks"
    assert reported["batch_size"] == Setting("batch_size", "int", 32, help_text, (), "Run", 1.0)
    schedule = reported["schedule"]
    assert (schedule.choices, schedule.group) == (("gpipe", "1f1b"), "The job's own. More of it")
    assert (reported["share"].at_least, reported["share"].at_most) == (0.0, 1.0)
    assert (reported["learning_rate"].at_least, reported["learning_rate"].at_most) == (None, None)


@pytest.mark.parametrize("item", JOBS, ids=[item.name for item in JOBS])
def test_a_job_and_its_settings_can_be_listed(item: Job) -> None:
    longest = max(len(other.name) for other in JOBS)
    assert longest + 2 + len(item.summary) <= 80, "a line of a terminal"
    for reported in describe(getattr(importlib.import_module(item.module), SETTINGS)):
        what = f"{item.name}: {reported.name}"
        assert reported.group, what
        assert len(reported.group) <= 30, (
            f"{what}: {reported.group}, of a class without a docstring"
        )
        assert reported.help, what
        assert "\n" not in reported.help, what
        assert reported.type == "str" or not reported.choices, what
        assert not reported.choices or reported.default in reported.choices, what


@pytest.mark.parametrize(
    ("name", "flag", "value"),
    [
        ("baseline", "--max-restarts", "-1"),
        ("baseline", "--seed", "-1"),
        ("baseline", "--split-seed", "-1"),
        ("baseline", "--sequence-length", "0"),
        ("baseline", "--prefetch", "0"),
        ("ddp", "--num-to-keep", "0"),
        ("fsdp2", "--shards", "-1"),
        ("pipeline", "--accumulate", "0"),
        ("benchmark", "--timeout-s", "0"),
    ],
)
def test_a_number_that_no_run_could_have_is_refused(name: str, flag: str, value: str) -> None:
    settings = getattr(importlib.import_module(job(name).module), SETTINGS)
    with pytest.raises(SystemExit) as ended:
        parse(settings, name, "", [flag, value])
    assert ended.value.code == 2


def test_settings_are_flags_with_dashes_or_underscores() -> None:
    argv = ["--batch-size", "4", "--learning_rate", "1e-3", "--stop-on-nan", "false"]
    assert parse(Settings, "job", "", argv) == Settings(4, 1e-3, False, "")
    assert parse(Settings, "job", "", []) == Settings()


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["--batch-size", "x"], "invalid int value"),
        (["--batch-size", "0"], "0 is not 1 or more"),
        (["--share", "1.5"], "1.5 is not 0 to 1"),
        (["--share", "nan"], "nan is not 0 to 1"),
        (["--stop-on-nan", "perhaps"], "neither true nor false"),
        (["--schedule", "1b1f"], "invalid choice"),
        (["--batchsize", "4"], "unrecognized"),
    ],
)
def test_a_wrong_flag_is_wrong_usage(
    argv: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(Own, "job", "", argv)
    assert ended.value.code == 2
    text = capsys.readouterr().err
    assert argv[0] in text
    assert why in text
