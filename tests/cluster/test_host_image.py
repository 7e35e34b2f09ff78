"""The directories of this host that pods of the test cluster see."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cluster.host_image import host_folders


def test_linked_virtual_environment_is_mounted_with_its_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "venv").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "venv")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "linked"))
    assert {str(tmp_path / "venv"), str(tmp_path / "linked")} <= set(host_folders())
