"""What holds for every test: its own directories, and no silent skip in CI."""

from __future__ import annotations

import os
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the user's own state is read or written, whichever way a test looks for it.

    Clusters shared by a module live in directories of their own, which their fixture sets.
    """
    for variable in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        if "/cockpit-tests-" not in os.environ.get(variable, ""):
            monkeypatch.setenv(variable, str(tmp_path / variable.lower()))
    for variable in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(variable, raising=False)
    for variable in [name for name in os.environ if name.startswith("COCKPIT_")]:
        monkeypatch.delenv(variable)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without the [train] extra the tests on a real Ray say so instead of failing."""
    if find_spec("ray") is not None:
        return
    for item in items:
        if item.get_closest_marker("ray"):
            item.add_marker(pytest.mark.skip(reason="Ray is not installed: the [train] extra"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where everything must run: {report.longrepr}"
    return report
