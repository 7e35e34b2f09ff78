"""The catalogue of jobs and the command line that their settings make."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import pytest

from training.jobs.catalogue import FILE, render
from training.jobs.settings import parse, setting


@dataclass(frozen=True)
class Settings:
    batch_size: int = setting(16, "examples a step")
    learning_rate: float = setting(0.1, "the peak")
    stop_on_nan: bool = setting(True, "whether to stop")
    path: str = setting("", "where")


def test_the_catalogue_agrees_with_the_jobs() -> None:
    assert FILE.read_text() == render(), "write it anew with: python -m training.jobs"


def test_the_list_of_jobs_is_light_to_import() -> None:
    program = (
        "import sys, training.jobs;"
        "print([m for m in ('ray', 'torch', 'numpy', 'argparse') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_settings_are_flags_with_dashes_or_underscores() -> None:
    argv = ["--batch-size", "4", "--learning_rate", "1e-3", "--stop-on-nan", "false"]
    assert parse(Settings, "job", "", argv) == Settings(4, 1e-3, False, "")
    assert parse(Settings, "job", "", []) == Settings()


@pytest.mark.parametrize(
    "argv", [["--batch-size", "x"], ["--stop-on-nan", "perhaps"], ["--batchsize", "4"]]
)
def test_a_wrong_flag_is_wrong_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(Settings, "job", "", argv)
    assert ended.value.code == 2
    assert argv[0] in capsys.readouterr().err
