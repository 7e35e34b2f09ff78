from __future__ import annotations

from pathlib import Path

import pytest

from cockpit.launch.job import BundledJob, JobSetting
from cockpit.launch.settings_file import SettingsFile, parsed, read
from cockpit.model.error import UsageError

DDP = BundledJob("ddp", "m", "s", (JobSetting("epochs", "int", 3, "passes over the data"),))


@pytest.mark.parametrize(
    ("name", "text", "job"),
    [
        ("best.json", '{"job": "ddp", "settings": {"epochs": 5, "compile": true}}', "ddp"),
        ("best.json", '{"settings": {"epochs": 5, "compile": true}, "accuracy": 0.99}', ""),
        ("best.json", '{"epochs": 5, "compile": "true"}', ""),
        ("best.toml", 'job = "ddp"\n[settings]\nepochs = 5\ncompile = true\n', "ddp"),
        ("standard input", "[settings]\nepochs = 5\ncompile = true\n", ""),
        ("standard input", '\n {"epochs": 5, "compile": true}', ""),
    ],
)
def test_settings_are_read_from_json_and_toml(name: str, text: str, job: str) -> None:
    assert parsed(text, name) == SettingsFile(name, job, {"epochs": "5", "compile": "true"})


def test_a_setting_that_is_called_job_is_one_where_there_are_settings_alone() -> None:
    assert parsed('{"job": "ddp", "trials": 4}', "x").settings == {"job": "ddp", "trials": "4"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"settings": ', "x.json is not JSON.\nExpecting value: line 1 column 14"),
        ("[1, 2]", "x.json is not a table of settings."),
        ('{"a": ' * 20_000, "x.json is not JSON."),
        ('{"a": ' * 20_000 + "1" + "}" * 20_000, "x.json is not JSON."),
        ('{"settings": {}}', "x.json has no settings."),
        ('{"job": 3, "settings": {"epochs": 5}}', "job in x.json is not a string."),
        ('{"epochs": [5, 6]}', "epochs in x.json is [5, 6].\nA setting is a string, a number"),
        ('{"epochs": null}', "epochs in x.json is null."),
    ],
)
def test_a_file_that_cannot_be_meant_is_reported(text: str, words: str) -> None:
    with pytest.raises(UsageError) as raised:
        parsed(text, "x.json")
    assert words in str(raised.value)
    assert len(str(raised.value).splitlines()) <= 3


def test_settings_of_another_job_and_wrong_ones_name_their_file() -> None:
    with pytest.raises(UsageError, match=r"in best.json are for fsdp2, not for ddp"):
        SettingsFile("best.json", "fsdp2", {"epochs": "5"}).require(DDP)
    with pytest.raises(UsageError, match=r"In best.json: epochs=5.5 is not a whole number"):
        SettingsFile("best.json", "ddp", {"epochs": "5.5"}).require(DDP)
    with pytest.raises(UsageError, match=r"In best.json: .* no setting 'epoch': did you mean"):
        SettingsFile("best.json", "", {"epoch": "5"}).require(DDP)


def test_a_file_that_is_not_there_or_no_text_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read") as raised:
        read(str(tmp_path / "none.json"))
    assert raised.value.why == "No such file or directory."
    (tmp_path / "model.pt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"model.pt is not UTF-8 text"):
        read(str(tmp_path / "model.pt"))
