"""Fixtures of all tests: separate directories. In CI, a skipped test is a failure."""

from __future__ import annotations

import gc
import itertools
import os
import signal
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests import house, lanes, line_coverage
from tests.cluster.fixtures import (
    control_plane,
    kubernetes,
    programs,
    ray_on_kubernetes,
    why_not,
)

__all__ = ["control_plane", "kubernetes", "programs", "ray_on_kubernetes"]


OWN_DIRECTORIES = itertools.count()


@pytest.fixture(autouse=True)
def own_directories(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's state is neither read nor written.

    Clusters shared by a module are in separate directories, which their fixture sets. A test makes
    its directory if it needs one: `tmp_path` for each of thousands of tests costs 3 ms each.
    """
    own = tmp_path_factory.getbasetemp() / "own" / str(next(OWN_DIRECTORIES))
    for variable in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        if "/cockpit-tests-" not in os.environ.get(variable, ""):
            monkeypatch.setenv(variable, str(own / variable.lower()))
    for variable in ("COLUMNS", "LINES"):  # a lane has them, and a terminal's own size is right
        monkeypatch.delenv(variable, raising=False)
    for variable in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(variable, raising=False)
    for variable in [name for name in os.environ if name.startswith(("COCKPIT_", "SLIPCOVER_"))]:
        monkeypatch.delenv(variable)


GPU = Path("/dev/nvidiactl")
"""There when a driver of NVIDIA's is loaded."""
TURN = pytest.StashKey[lanes.Turn]()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    return lanes.process_count(config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A worker process does not know how the tests were selected: it is passed on."""
    node.workerinput["quick"] = lanes.quick(node.config)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # A shell starts background jobs, and nohup its command, with these ignored, and so would every
    # process be that a test starts and interrupts.
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if lanes.process_count(config) and not lanes.is_worker(config):
        config.pluginmanager.register(lanes.FailuresAtOnce(config))
    if lanes.quick(config) and not lanes.is_worker(config) and not config.option.collectonly:
        line_coverage.start()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Check lint, types and import contracts before the quick lane starts its processes."""
    config = session.config
    if not lanes.quick(config) or lanes.is_worker(config) or config.option.collectonly:
        return
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    assert reporter is not None
    if name := house.failed_check(reporter.write_line):
        pytest.exit(f"{name} failed: no test was run", returncode=1)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import the files that have no test of the lane. None: as pytest decides."""
    return lanes.has_no_test(config, collection_path) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of this lane; without the [train] extra skip those on Ray.

    Tests on a GPU are left out without one: no machine of CI has one.
    """
    lanes.require_marker_in_text(items)
    left_out = set(lanes.leave_out(config, items))
    if not GPU.exists():
        left_out |= {item for item in items if item.get_closest_marker("gpu")}
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))
    lanes.divide(items)
    if find_spec("ray") is not None:
        return
    for item in items:
        if item.get_closest_marker("ray"):
            item.add_marker(pytest.mark.skip(reason="Ray is not installed: the [train] extra"))


def pytest_collection_finish() -> None:
    """Collect garbage less often: it was a quarter of the CPU time of the tests of the screen."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool, bool]:
    """Outermost, so that no test's timeout includes its wait for its turn."""
    if not lanes.is_worker(item.config):
        return (yield)
    turn = item.stash[TURN] = lanes.Turn()
    try:
        turn.take()
        return (yield)
    finally:
        turn.end()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin no test after the time limit. Run a timed test that failed again alone."""
    if lanes.time_is_over() and not lanes.is_again(item):
        pytest.skip(lanes.NOT_BEGUN)
    if lanes.is_again(item) and TURN in item.stash:
        item.stash[TURN].take(alone=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a quick lane that ran too little of the code. The processes have ended by now."""
    if lanes.is_worker(session.config) or (percent := line_coverage.percent()) is None:
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    assert reporter is not None
    least = line_coverage.LEAST_PERCENT
    reporter.write_line(f"\nCoverage of cockpit/: {percent:.1f} % of lines (required: {least:g} %)")
    if percent < least and not session.exitstatus:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config: pytest.Config) -> None:
    if not lanes.is_worker(config):
        line_coverage.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    known = hasattr(report, "wasxfail") or lanes.was_not_begun(report)
    if report.skipped and os.environ.get("CI") and not known:
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where everything must run: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> Generator[None, None, None]:
    """Name, in the last lines, the tests that were not run, and why."""
    yield
    skipped = terminalreporter.stats.get("skipped", [])
    if late := [report for report in skipped if lanes.was_not_begun(report)]:
        terminalreporter.write_line(f"Tests {lanes.NOT_BEGUN} ({len(late)}):")
        for report in late:
            terminalreporter.write_line(f"  {report.nodeid}")
    if not GPU.exists():
        terminalreporter.write_line("No test ran on a GPU: this machine has none.")
    if why := why_not():
        terminalreporter.write_line(f"No test ran on a real Kubernetes: {why}.")
