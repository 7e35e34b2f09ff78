"""Two lanes of tests: those on a Ray of this machine in one; in the other the rest, which either
goes on with, and Kubernetes at its end.

A machine of two cores is not always busy with one real cluster: much of a real test is waiting. The
tests of a file stay together, as its fixtures do. Those that judge the times or the pace of a run
are `alone`: while one of them runs, the other lane waits. Two local clusters at once gain nothing:
all that they wait for is each other.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.fixtures import cluster_wanted

ROOT = Path(__file__).parent
LANES = 2
KUBERNETES, RAY = "kubernetes", "ray"


def wanted(config: pytest.Config) -> int:
    """How many processes: none of their own where tests are named, which so begin at once."""
    return LANES if config.args_source is pytest.Config.ArgsSource.TESTPATHS else 0


def is_lane(config: pytest.Config) -> bool:
    """Whether this process is one of them."""
    return hasattr(config, "workerinput")


def divide(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order them, and say which stay together: what takes longest begins first.

    A Kubernetes comes last, and what needs all of it after what needs only its API: it runs until
    the end of all tests, and would slow down whatever came after.
    """
    on_kubernetes = {item.path for item in items if cluster_wanted(item)}
    order = dict[pytest.Item, int]()
    for item in items:
        lane, order[item] = str(item.path.relative_to(ROOT)), 0
        if item.path in on_kubernetes:
            lane, order[item] = KUBERNETES, cluster_wanted(item) + 1
        elif item.get_closest_marker("ray"):
            lane, order[item] = RAY, -1 if is_lane(config) else 0
        item.add_marker(pytest.mark.xdist_group(lane))
    items.sort(key=order.__getitem__)


@contextmanager
def turn(alone: bool) -> Iterator[None]:
    """Beside the other lane's test, or alone; who waits to be alone is not overtaken."""
    room = os.open(ROOT, os.O_RDONLY)
    try:
        gate = os.open(ROOT.parent, os.O_RDONLY)
        try:
            fcntl.flock(gate, fcntl.LOCK_EX)
            fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        finally:
            os.close(gate)
        yield
    finally:
        os.close(room)
