"""Gauges and counters for Prometheus: what is set, and that a real node serves it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from cockpit.insight.detectors import stuck_start
from cockpit.model.run import RunState
from tests.training.cluster import Cluster, drive
from training.telemetry.head import metrics
from training.telemetry.head.aggregator import Aggregator
from training.telemetry.head.metrics import Meter
from training.telemetry.ray_train.end_reason import lacking
from training.telemetry.wire import AttemptEnd, AttemptStart, Report, Run, Steps, Worker


class Fake:
    """An instrument that keeps what it was given."""

    made: defaultdict[str, dict[tuple[str, ...], float]]

    def __init__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> None:
        assert description.endswith(".")
        self._series, self._keys = self.made[name], tag_keys

    def set(self, value: float, tags: dict[str, str]) -> None:
        self._series[tuple(tags[key] for key in self._keys)] = value

    def inc(self, value: float, tags: dict[str, str]) -> None:
        key = tuple(tags[key] for key in self._keys)
        self._series[key] = self._series.get(key, 0.0) + value


class Clock:
    s = 100.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def made() -> defaultdict[str, dict[tuple[str, ...], float]]:
    Fake.made = defaultdict(dict)
    return Fake.made


Made = defaultdict[str, dict[tuple[str, ...], float]]


def steps(rank: int, step: int = 7) -> Steps:
    return Steps(
        rank=rank,
        attempt=1,
        t=0.0,
        step=step,
        first_step=step,
        steps_total=step,
        loss=float(rank),
        gpu_power_w=300.0,
    )


def test_values_are_set_again_because_ray_drops_those_that_are_not(made: Made) -> None:
    clock = Clock()
    meter = Meter(Fake, Fake, clock, every_s=5.0)
    meter.wrote(Run(run="ab", name="digits"))
    meter.wrote(AttemptStart(run="ab", attempt=1, workers=(Worker(rank=0), Worker(rank=1))))
    meter.tick("ab", [steps(0), steps(1)])
    before = {name: dict(series) for name, series in made.items() if series}
    assert {"cockpit_train_running", "cockpit_train_step_timestamp_seconds"} <= before.keys()

    def exported_after(seconds: float) -> dict[str, dict[tuple[str, ...], float]]:
        """The gauges that Ray still exports, which drops those that are not set."""
        for series in made.values():
            series.clear()
        clock.s += seconds
        meter.refresh()
        return {name: dict(series) for name, series in made.items() if series}

    gauges = {name: series for name, series in before.items() if name != "cockpit_train_attempts"}
    assert exported_after(10.0) == gauges
    assert exported_after(1.0) == {}, "not more often than Ray exports"
    meter.wrote(AttemptEnd(run="ab", attempt=1))
    after = exported_after(10.0)
    assert "cockpit_train_step_timestamp_seconds" not in after, "the next may have fewer ranks"
    assert after["cockpit_train_running"] == {("ab", "digits"): 0.0}
    meter.wrote(Run(run="ab", name="digits", state="FINISHED"))
    assert exported_after(10.0) == {}


def test_records_after_the_end_of_a_run_do_not_bring_its_gauges_back(made: Made) -> None:
    clock = Clock()
    meter = Meter(Fake, Fake, clock)
    meter.wrote(Run(run="ab", state="RUNNING"))
    meter.wrote(Run(run="ab", state="FINISHED"))
    for series in made.values():
        series.clear()
    meter.tick("ab", [steps(0)])
    meter.wrote(Report(run="ab", attempt=1, checkpoint="/c"))
    meter.wrote(AttemptEnd(run="ab", attempt=1))
    assert made["cockpit_train_reports"] == made["cockpit_train_checkpoints"] == {("ab", ""): 1.0}
    assert not made["cockpit_train_step"]
    for series in made.values():
        series.clear()
    clock.s += 10
    meter.refresh()
    assert not any(made.values())
    meter.wrote(Run(run="ab", state="INITIALIZING"))
    meter.tick("ab", [steps(0)])
    assert made["cockpit_train_step"] == {("ab", "", "0"): 7.0}, "another driver continues it"


def test_a_small_world_has_series_by_rank(made: Made) -> None:
    meter = Meter(Fake, Fake, Clock())
    meter.wrote(Run(run="ab", name="digits"))
    meter.tick("ab", [steps(0), steps(1)])
    assert made["cockpit_train_loss"] == {("ab", "digits", "0"): 0.0, ("ab", "digits", "1"): 1.0}
    assert made["cockpit_train_step"][("ab", "digits", "1")] == 7.0
    assert made["cockpit_train_gpu_power_watts"][("ab", "digits", "0")] == 300.0
    assert not made["cockpit_train_mfu_percent"], "what is not told is not 0"


def test_a_large_world_has_three_series_of_each_number(made: Made) -> None:
    meter = Meter(Fake, Fake, Clock(), full_ranks=256)
    meter.tick("ab", [steps(rank) for rank in range(1000)])
    assert made["cockpit_train_loss"] == {
        ("ab", "", "min"): 0.0,
        ("ab", "", "mean"): 499.5,
        ("ab", "", "max"): 999.0,
    }


def test_attempts_reports_and_checkpoints_are_counted(made: Made) -> None:
    now = Clock()
    meter = Meter(Fake, Fake, Clock(), now=now)
    meter.wrote(AttemptStart(run="ab", attempt=1, workers=(Worker(rank=0), Worker(rank=1))))
    meter.wrote(Report(run="ab", attempt=1))
    saved = Report(run="ab", attempt=1, checkpoint="/c", checkpoint_bytes=12, checkpoint_took_s=0.5)
    now.s += 7
    meter.wrote(saved)
    now.s += 1
    meter.wrote(AttemptStart(run="ab", attempt=2, workers=(Worker(rank=0),)))
    key = ("ab", "")
    assert {name: series[key] for name, series in made.items() if series} == {
        "cockpit_train_attempts": 2,
        "cockpit_train_world_size": 1,
        "cockpit_train_reports": 2,
        "cockpit_train_checkpoints": 1,
        "cockpit_train_checkpoint_bytes": 12,
        "cockpit_train_checkpoint_seconds": 0.5,
        "cockpit_train_running": 1,
        "cockpit_train_attempt_timestamp_seconds": 108,
        "cockpit_train_report_timestamp_seconds": 107,
        "cockpit_train_report_interval_seconds": 7,
        "cockpit_train_checkpoint_timestamp_seconds": 107,
    }
    now.s += 3
    meter.wrote(saved)
    assert made["cockpit_train_checkpoint_interval_seconds"][key] == 4


def test_state_of_a_run_is_since_when_it_starts_and_whether_ranks_are_up(made: Made) -> None:
    now, key = Clock(), ("ab", "")
    meter = Meter(Fake, Fake, Clock(), now=now)
    since, running = made["cockpit_train_starting_timestamp_seconds"], made["cockpit_train_running"]
    meter.wrote(Run(run="ab", state="SCHEDULING"))
    now.s += 5
    meter.wrote(Run(run="ab", state="RESCHEDULING"))
    assert since[key] == 100, "without interruption"
    meter.wrote(Run(run="ab", state="SCHEDULING", message="waits for resources: 2 workers need"))
    assert since[key] == 0
    meter.wrote(AttemptStart(run="ab", attempt=1))
    meter.wrote(Run(run="ab", state="RUNNING"))
    assert (since[key], running[key]) == (0, 1)
    meter.wrote(AttemptEnd(run="ab", attempt=1))
    meter.wrote(Run(run="ab", state="RESTARTING"))
    assert (since[key], running[key]) == (105, 0)
    meter.wrote(Run(run="ab", state="SCHEDULING", message="waits for resources: 2 workers need"))
    assert since[key] == 105, "a node was lost"
    meter.wrote(AttemptStart(run="ab", attempt=2))
    meter.wrote(Run(run="ab", state="FINISHED"))
    assert (since[key], running[key]) == (0, 0)


def test_states_and_message_are_those_that_cockpits_own_alert_knows() -> None:
    assert {state.value for state in stuck_start.BETWEEN} == metrics.STARTING
    assert {state.value for state in RunState if state.is_over} == metrics.ENDED
    assert metrics.LACKING == stuck_start.LACKING
    assert lacking(2, {"CPU": 1.0}, {}).startswith(metrics.LACKING)


def test_time_of_the_newest_step_is_by_rank_and_of_a_large_world_once(made: Made) -> None:
    series = made["cockpit_train_step_timestamp_seconds"]
    Meter(Fake, Fake, Clock()).tick("ab", [steps(0), replace(steps(1), t=3.0)])
    assert series == {("ab", "", "0"): 0.0, ("ab", "", "1"): 3.0}
    series.clear()
    many = [replace(steps(rank), t=float(rank)) for rank in range(1000)]
    Meter(Fake, Fake, Clock(), full_ranks=256).tick("ab", many)
    assert series == {("ab", "", "max"): 999.0}


def test_gauges_are_not_set_more_often_than_ray_exports(made: Made) -> None:
    clock = Clock()
    meter = Meter(Fake, Fake, clock, every_s=5.0)
    meter.tick("ab", [steps(0, 1)])
    clock.s += 4
    meter.tick("ab", [steps(0, 2)])
    assert made["cockpit_train_step"][("ab", "", "0")] == 1
    clock.s += 1
    meter.tick("ab", [steps(0, 3)])
    assert made["cockpit_train_step"][("ab", "", "0")] == 3


def test_first_ranks_of_a_large_world_do_not_stay_as_series_of_their_own(made: Made) -> None:
    """Their last step would seem to be that of its start: the alert `silent-rank`."""
    clock, series = Clock(), made["cockpit_train_step_timestamp_seconds"]
    meter = Meter(Fake, Fake, clock, full_ranks=256, every_s=5.0)
    meter.tick("ab", [steps(rank) for rank in range(3)])
    assert set(series) == {("ab", "", "0"), ("ab", "", "1"), ("ab", "", "2")}
    clock.s += 5
    meter.tick("ab", [steps(rank) for rank in range(1000)])
    series.clear()
    made["cockpit_train_loss"].clear()
    clock.s += 5
    meter.refresh()
    assert set(series) == {("ab", "", "max")}
    assert set(made["cockpit_train_loss"]) == {("ab", "", name) for name in ("min", "mean", "max")}


def test_number_that_a_rank_no_longer_reports_is_not_set_again(made: Made) -> None:
    """Its GPU is lost: the last power is not that of now."""
    clock, power = Clock(), made["cockpit_train_gpu_power_watts"]
    meter = Meter(Fake, Fake, clock, every_s=5.0)
    meter.tick("ab", [steps(0), steps(1)])
    clock.s += 5
    meter.tick("ab", [replace(steps(0), gpu_power_w=None), steps(1)])
    power.clear()
    clock.s += 5
    meter.refresh()
    assert power == {("ab", "", "1"): 300.0}


def test_after_a_restart_the_gauges_are_those_of_before_and_nothing_is_counted_again(
    made: Made, tmp_path: Path
) -> None:
    path, key = tmp_path / "s.jsonl", ("ab", "digits")
    killed = Aggregator(path, tick_s=3600)
    killed.write(1.0, Run(run="ab", name="digits", state="RUNNING"))
    killed.write(2.0, AttemptStart(run="ab", attempt=1, workers=(Worker(rank=0), Worker(rank=1))))
    for t in (5.0, 9.0):
        killed.write(t, Report(run="ab", attempt=1, checkpoint="/c"))
    killed.close()
    restarted = Aggregator(path, tick_s=3600, meter=Meter(Fake, Fake))
    restarted.push("ab", [steps(0)])
    restarted.close()
    assert made["cockpit_train_loss"] == {(*key, "0"): 0.0}
    assert made["cockpit_train_running"] == {key: 1}
    assert made["cockpit_train_world_size"] == {key: 2}
    assert made["cockpit_train_attempt_timestamp_seconds"] == {key: 2.0}
    assert made["cockpit_train_checkpoint_timestamp_seconds"] == {key: 9.0}
    assert made["cockpit_train_checkpoint_interval_seconds"] == {key: 4.0}
    for counted in ("attempts", "reports", "checkpoints"):
        assert made[f"cockpit_train_{counted}"] == {}


SERVED = """
import sys, time, urllib.request
from pathlib import Path
import ray
from training.telemetry.head.aggregator import connect
from training.telemetry.wire import AttemptStart, Run, Steps, Worker
ray.init()
aggregator = connect(ray.get_runtime_context().get_job_id())
ray.get(aggregator.write.remote(1.0, Run(run="ab", name="digits", state="RUNNING")))
ray.get(aggregator.write.remote(1.0, AttemptStart(run="ab", attempt=1, workers=(Worker(rank=0),))))
row = Steps(rank=0, attempt=1, t=1.0, step=7, first_step=7, steps_total=7, loss=0.25)
ray.get(aggregator.push.remote("ab", (row,)))
(port,) = Path(sys.argv[1]).glob("metrics_export_port*")
wanted = ("ray_cockpit_train_loss{", "ray_cockpit_train_attempts_total{")
deadline = time.monotonic() + 60
while time.monotonic() < deadline:
    with urllib.request.urlopen(f"http://127.0.0.1:{port.read_text().strip()}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    found = [line for line in lines if line.startswith(wanted) and 'run="ab"' in line]
    if len(found) >= 2:
        break
    time.sleep(0.3)
print(*found, sep="\\n")
"""


@pytest.mark.slow
@pytest.mark.ray
def test_the_head_node_serves_them_to_prometheus(cluster: Cluster) -> None:
    ran = drive(cluster, ["-c", SERVED, str(cluster.logs.parent)], limit_s=120)
    assert ran.code == 0, ran.output[-4000:]
    served = [line for line in ran.output.splitlines() if line.startswith("ray_cockpit_train_")]
    (attempts,) = [line for line in served if "attempts_total" in line]
    (loss,) = [line for line in served if "_loss{" in line]
    for line, value in ((attempts, 1.0), (loss, 0.25)):
        assert 'run="ab"' in line
        assert 'name="digits"' in line
        assert float(line.rpartition(" ")[2]) == value
    assert 'rank="0"' in loss
