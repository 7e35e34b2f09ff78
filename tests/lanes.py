"""Which tests run, in which process, and in which order.

**Lanes.** `pytest` runs the quick lane: each chain once on real parts. `pytest -m slow` runs the
rest, except variants and the soak, which run only when their marker is named: `pytest -m nightly`
(the same chains with other scripts, jobs and backends) and `pytest -m soak`. Quick and slow tests
named on the command line always run.

**Processes.** A real cluster mostly waits, so several processes share two cores. One runs the tests
on Kubernetes, one those of training and of sources on Ray. The tests that start local clusters stay
together by folder, and the light ones by file; each process takes the next folder or file when it
has finished the one before.

**Timed tests.** A test marked `timed` compares times with a bound of seconds, which load exceeds.
When it fails beside other tests, it runs again while the other processes wait. Only the second
result counts; the summary lists the first one as a rerun.

**Time limit.** No test begins after the time in TESTS_BEGIN_UNTIL_S (Unix, in seconds), so that a
slow machine reports a result before CI stops it. The last lines list the tests that did not begin.
"""

from __future__ import annotations

import fcntl
import os
import time
from functools import cache
from pathlib import Path

import pytest

from tests.cluster.fixtures import cluster_wanted

ROOT = Path(__file__).parent
PROCESSES = 3
KUBERNETES, LOCAL, RAY = "kubernetes", "local", "ray"
BY_NAME = ("nightly", "soak")
"""Markers whose tests run only when the marker is named."""
MARKERS = ("slow", *BY_NAME)
"""Of lanes. A file with such tests contains the name of the marker."""
TWO_ATTEMPTS_S = 3_600
"""Time limit of both attempts of a timed test, with the wait between them."""
BEGIN_UNTIL_S = "TESTS_BEGIN_UNTIL_S"
MESSAGE_CHARS = 2_000
NOT_BEGUN = "not begun: the time limit of this run was reached"
OF_JOBS = ("training", "sources")
"""Folders whose tests on Ray share one process."""
LONGEST = "drills"
"""Of the folders with tests on local clusters."""


def process_count(config: pytest.Config) -> int:
    """Return 0 (run in this process) when tests are named: they begin at once."""
    return PROCESSES if whole_suite(config) else 0


def whole_suite(config: pytest.Config) -> bool:
    """Return whether no file or test was named on the command line."""
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS


def quick(config: pytest.Config) -> bool:
    """Return whether this is the quick lane: the whole suite, and no marker chosen."""
    return whole_suite(config) and not config.option.markexpr


def is_worker(config: pytest.Config) -> bool:
    """Return whether this is one of the processes that run the tests."""
    return hasattr(config, "workerinput")


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests of `items` that belong to another lane than the one that runs."""
    given = getattr(config, "workerinput", None)  # a worker does not see how tests were chosen
    others = {"slow"} if (given["quick"] if given else quick(config)) else set()
    others.update(marker for marker in BY_NAME if marker not in config.option.markexpr)
    return [item for item in items if others & {mark.name for mark in item.iter_markers()}]


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def has_no_test(config: pytest.Config, path: Path) -> bool:
    """Return whether the lane of one marker runs no test of this file, by its text.

    To import all 460 files takes each process 19 s of CPU; a quarter of them have slow tests.
    """
    marker = config.option.markexpr
    is_test = path.name.startswith("test_") and path.suffix == ".py"
    return marker in MARKERS and is_test and marker not in text_of(path)


def require_marker_in_text(items: list[pytest.Item]) -> None:
    """Raise UsageError for a test whose lane would not find it: see `has_no_test`."""
    for item in items:
        for mark in item.iter_markers():
            if mark.name in MARKERS and mark.name not in text_of(item.path):
                raise pytest.UsageError(
                    f"{item.nodeid} has the marker {mark.name}, and its file lacks the name"
                )


def time_is_over() -> bool:
    """Return whether the time until which tests may begin has passed."""
    return time.time() > float(os.environ.get(BEGIN_UNTIL_S, "inf"))


def is_again(item: pytest.Item) -> bool:
    """Return whether this is the second try of a timed test.

    What a fixture of its module has measured is that of the first try.
    """
    return getattr(item, "execution_count", 1) > 1


def was_not_begun(report: pytest.TestReport) -> bool:
    """Return whether the test was skipped because the time was over."""
    return bool(report.skipped) and NOT_BEGUN in str(report.longrepr)


def divide(items: list[pytest.Item]) -> None:
    """Order the tests and mark which of them stay in one process: the longest groups begin first.

    Among those on Kubernetes, what needs only the API comes before what needs pods.
    """
    on_kubernetes = {item.path for item in items if cluster_wanted(item)}
    order = dict[pytest.Item, tuple[int, int]]()
    for item in items:
        path = item.path.relative_to(ROOT)
        folder = path.parts[0]
        group, order[item] = str(path), (3, 0)
        if item.path in on_kubernetes:
            group, order[item] = KUBERNETES, (0, cluster_wanted(item))
        elif item.get_closest_marker("ray"):
            group, order[item] = f"{LOCAL}/{folder}", (2, folder != LONGEST)
            if folder in OF_JOBS:
                group, order[item] = RAY, (1, 0)
        item.add_marker(pytest.mark.xdist_group(group))
        if item.get_closest_marker("timed") and is_worker(item.config):
            item.add_marker(pytest.mark.flaky(reruns=1))
            item.add_marker(pytest.mark.timeout(TWO_ATTEMPTS_S), append=False)
    items.sort(key=order.__getitem__)


class FailuresAtOnce:
    """Print a failed test and its message at once: the details come at the end of the run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        what = {"failed": "FAILED", "rerun": "RERUN"}.get(str(report.outcome))
        if what and reporter is not None:
            seconds = f"{report.when}, {report.duration:.1f} s"
            reporter.write_line(f"{what} {report.nodeid} ({seconds})", red=True)
            crash = getattr(report.longrepr, "reprcrash", None)  # a rerun test has no other report
            if crash is not None:
                reporter.write_line(f"  {crash.message[:MESSAGE_CHARS]}")


class Turn:
    """A test's permission to run, beside those of other processes or alone.

    No test begins while another one waits to run alone.
    """

    def __init__(self) -> None:
        self._room = os.open(ROOT, os.O_RDONLY)

    def take(self, alone: bool = False) -> None:
        """Wait until no other test runs alone, and with `alone` until none runs at all."""
        fcntl.flock(self._room, fcntl.LOCK_UN)  # who holds the gate may wait for this process
        gate = os.open(ROOT.parent, os.O_RDONLY)
        try:
            fcntl.flock(gate, fcntl.LOCK_EX)
            fcntl.flock(self._room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        finally:
            os.close(gate)

    def end(self) -> None:
        os.close(self._room)
