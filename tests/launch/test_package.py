from __future__ import annotations

import os
import stat
import zipfile
from pathlib import Path

import pytest

from cockpit.launch import package as packaging
from cockpit.launch.package import package_directory, package_training
from cockpit.model.error import UsageError


@pytest.fixture
def code(tmp_path: Path) -> Path:
    directory = tmp_path / "code"
    (directory / "deep").mkdir(parents=True)
    (directory / "train.py").write_text("print('hello')\n")
    (directory / "deep" / "run.sh").write_text("#!/bin/sh\n")
    (directory / "deep" / "run.sh").chmod(0o755)
    for skipped in (".git", ".venv", "__pycache__", "node_modules"):
        (directory / skipped).mkdir()
        (directory / skipped / "file").write_text("no")
    (directory / "train.pyc").write_text("no")
    return directory


def test_the_same_content_is_the_same_package_byte_for_byte(code: Path) -> None:
    first = package_directory(code)
    data = first.read()
    first.path.unlink()
    os.utime(code / "train.py", (1, 1))
    second = package_directory(code)
    assert (second.name, second.read()) == (first.name, data)
    assert second.uri == f"gcs://{second.name}"
    (code / "train.py").write_text("print('hello!')\n")
    assert package_directory(code).name != first.name


def test_a_package_has_the_code_and_not_what_lies_around_it(code: Path) -> None:
    with zipfile.ZipFile(package_directory(code).path) as archive:
        assert archive.namelist() == ["train.py", "deep/run.sh"]
        mode = archive.getinfo("deep/run.sh").external_attr >> 16
    assert stat.S_IMODE(mode) == 0o755


def test_a_package_that_is_known_is_not_written_again(code: Path) -> None:
    path = package_directory(code).path
    before = path.stat().st_mtime_ns
    assert package_directory(code).path.stat().st_mtime_ns == before


def test_a_directory_that_is_too_large_reports_what_is_large(
    code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packaging, "SIZE_LIMIT_BYTES", 2 << 20)
    (code / "weights.bin").write_bytes(bytes(3 << 20))
    with pytest.raises(UsageError, match="is 3 MiB; the limit for a job is 2 MiB") as raised:
        package_directory(code)
    assert "weights.bin (3 MiB)" in raised.value.why


def test_the_training_package_is_importable_by_its_name_and_brings_its_data() -> None:
    with zipfile.ZipFile(package_training().path) as archive:
        names = archive.namelist()
    assert "training/telemetry/callback.py" in names
    assert "training/jobs/catalogue.json" in names
    assert not [name for name in names if "__pycache__" in name]
