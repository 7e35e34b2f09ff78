"""Sources measure intervals with the monotonic clock."""

from __future__ import annotations

from cockpit.model.tracking import RunRef
from cockpit.sources.prometheus.settings import PrometheusSettings
from cockpit.sources.prometheus.source import PrometheusSource
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.telemetry.files import DriverStates
from cockpit.sources.telemetry.source import TelemetrySource
from cockpit.sources.telemetry.stream import Stream
from tests.sources.fake_dashboard import FakeDashboard


class Clocks:
    """A wall clock that can be set, and a monotonic one."""

    def __init__(self) -> None:
        self.wall_s, self.since_s = 1e9, 50.0

    def wall(self) -> float:
        return self.wall_s

    def since(self) -> float:
        return self.since_s


def test_history_of_run_is_due_in_time_though_clock_was_set_back() -> None:
    clocks = Clocks()
    source = PrometheusSource(
        PrometheusSettings(""), curves_awaited_s=20.0, clock=clocks.wall, monotonic=clocks.since
    )
    run = RunRef("ab12", "digits", 1e9)
    assert not source._is_due(run)
    clocks.wall_s -= 3_600.0
    clocks.since_s += 20.0
    assert source._is_due(run)


async def test_end_of_driver_is_found_in_time_though_clock_was_set_back(
    fake: FakeDashboard, dashboard: Dashboard
) -> None:
    fake.add_job("one")
    clocks = Clocks()
    source = TelemetrySource(dashboard, clock=clocks.wall, monotonic=clocks.since)
    jobs: DriverStates = source._drivers()
    ray_id = next(job.ray_id for job in await dashboard.jobs())
    stream = Stream("head", ray_id, clocks.since())
    assert not await jobs.is_over(stream)
    fake.end_job("one")
    clocks.wall_s -= 3_600.0
    clocks.since_s += 3.1
    assert await jobs.is_over(stream)
