"""The spending guard: what it decides, and that it ends a cluster."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest
from msgspec.structs import replace

from cockpit.backends.lambda_cloud import description, spending, state
from cockpit.backends.lambda_cloud.description import Cloud
from cockpit.backends.lambda_cloud.limits import Spending
from cockpit.backends.lambda_cloud.spending import Act, decided
from cockpit.backends.lambda_cloud.state import Node, State
from cockpit.cli.main import main
from cockpit.config import paths
from tests.backends.lambda_cloud.test_instances import make
from tests.lambda_cloud import LambdaCloud

HOUR_S = 3600.0
NODES = (
    Node("head", "a", "cpu", 100, (), "1", since_s=0.0),
    Node("gpu-1", "b", "gpu", 300, (), "2", since_s=0.0, ended_s=HOUR_S / 2),
    Node("gpu-1", "c", "gpu", 300, ()),  # not launched yet
)
RECORD = State("lab", "/lab.toml", "us-east-1", nodes=NODES)
IDLE = Spending(idle_s=600.0)


def test_cost_is_that_of_all_instances_from_launch_to_end() -> None:
    assert RECORD.spent(2 * HOUR_S) == 200 + 150
    assert RECORD.cents_per_hour == 100


@pytest.mark.parametrize(
    ("limits", "now_s", "busy", "act"),
    [
        (Spending(max_total=349), 2 * HOUR_S, True, Act.END),
        (Spending(max_total=351), 2 * HOUR_S, True, Act.KEEP),
        (Spending(max_total=351), 2 * HOUR_S, False, Act.KEEP),
        (IDLE, HOUR_S, False, Act.KEEP),
    ],
)
def test_limits_end_a_cluster(limits: Spending, now_s: float, busy: bool, act: Act) -> None:
    assert decided(RECORD, limits, now_s, busy)[1] is act


def test_cluster_without_a_job_is_reported_or_ended_after_the_idle_time() -> None:
    since, act = decided(RECORD, IDLE, 100.0, busy=False)
    assert (since.idle_since_s, act) == (100.0, Act.KEEP)
    assert decided(since, IDLE, 699.0, busy=False)[1] is Act.KEEP
    reported, act = decided(since, IDLE, 701.0, busy=False)
    assert act is Act.REPORT
    assert "no job runs on it for more than 10 min" in reported.notice
    assert decided(since, replace(IDLE, ends_idle=True), 701.0, busy=False)[1] is Act.END
    # A job, or a dashboard that never answered, is no idle time.
    assert decided(reported, IDLE, 702.0, busy=True) == (RECORD, Act.KEEP)
    assert decided(RECORD, IDLE, 702.0, busy=None) == (RECORD, Act.KEEP)
    # The time until the dashboard was lost counts on.
    assert decided(since, IDLE, 701.0, busy=None)[1] is Act.REPORT


def test_guard_ends_a_cluster_at_its_total_and_up_reports_it(
    lambda_cloud: LambdaCloud,
    described: Cloud,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make(described)
    monkeypatch.setattr(spending, "CHECK_S", 0.01)

    async def idle(name: str) -> bool:
        return False

    monkeypatch.setattr(spending, "_busy", idle)
    with Path(described.path).open("a") as file:
        file.write("[spending]\nmax_total = 0\n")
    asyncio.run(spending.watch("lab"))
    assert lambda_cloud.alive == []
    assert state.load("lab") is None
    assert "Ending cluster lab: it has cost $0.00, and max_total is reached." in (
        capsys.readouterr().out
    )
    assert main(["status", "--on", "lambda", described.path]) == 0
    assert "Ended by the spending guard: it has cost $0.00" in capsys.readouterr().err


def idle_cluster(described: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster whose `up` was killed before Ray was started, and a guard that does not pause."""
    path = Path(described.path)
    limits = 'idle_minutes = 0\nwhen_idle = "end"'
    path.write_text(f"{path.read_text()}[spending]\n{limits}\n")
    make(description.read(described.path))
    monkeypatch.setattr(spending, "CHECK_S", 0.01)


def test_guard_applies_the_limits_of_the_record_while_the_file_cannot_be_read(
    lambda_cloud: LambdaCloud,
    described: Cloud,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    idle_cluster(described, monkeypatch)
    Path(described.path).write_text("[[instances")
    asyncio.run(spending.watch("lab"))
    assert lambda_cloud.alive == []
    assert "The limits of the last check apply." in capsys.readouterr().out


def test_cluster_on_which_ray_never_started_is_idle_since_its_launch(
    lambda_cloud: LambdaCloud, described: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle_cluster(described, monkeypatch)
    asyncio.run(spending.watch("lab"))
    assert lambda_cloud.alive == []
    assert state.load("lab") is None


def test_guard_continues_after_a_failure_and_ends_a_cluster_on_a_full_disk(
    lambda_cloud: LambdaCloud,
    described: Cloud,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    idle_cluster(described, monkeypatch)
    replace_file, failures = paths.replace_file, iter(range(3))

    def full(path: Path, content: str | bytes, **flags: bool) -> None:
        if next(failures, None) is not None:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        replace_file(path, content, **flags)

    monkeypatch.setattr(paths, "replace_file", full)
    asyncio.run(spending.watch("lab"))
    assert lambda_cloud.alive == []
    assert state.load("lab") is None
    assert "No space left on device" in capsys.readouterr().out


def test_guard_is_not_started_without_a_limit(described: Cloud) -> None:
    spending.start(described)
    assert not spending.runs("lab")
