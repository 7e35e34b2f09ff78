"""Alerts that need hours, nodes, or runs with few reports, each on a separate run."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from cockpit.insight.detectors import memory
from cockpit.insight.detectors.gpus import find as gpus_find
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.model.alert import Severity
from cockpit.model.cluster import Node
from cockpit.model.event import (
    GpuActivityListed,
    MetricsReported,
    NodesListed,
    RunSeen,
    SourceHealth,
)
from cockpit.model.run import RankSample, RunState
from cockpit.model.tracking import GpuActivity
from tests.insight.training_run import GIB, RUN, Training, Watcher


def started(training: Training, limits: Thresholds | None = None) -> Watcher:
    training.start()
    return Watcher(training, limits or Thresholds())


def nodes(training: Training, used_bytes: int, gpus: int = 0, **more: int) -> None:
    node = Node(
        "n0", "10.0.0.0", "host", False, True, memory_used_bytes=used_bytes,
        memory_total_bytes=64 * GIB, resources={"GPU": float(gpus)} if gpus else {},
    )  # fmt: skip
    training.tell(NodesListed(at_s=training.clock, source="ray", nodes=(replace(node, **more),)))
    training.tell(SourceHealth(at_s=training.clock, source="ray", ok=True))


def test_a_stage_that_does_more_than_it_did_is_reported_though_another_is_slower_still() -> None:
    """A pipeline: its stages always differ, and only the first of them changes."""

    def stages(sample: RankSample, at_s: float) -> RankSample:
        own = (0.040, 0.048, 0.056, 0.064)[sample.rank]
        own = 0.068 if sample.rank == 0 and at_s > 300 else own
        return replace(sample, step_time_s=0.08, comm_s=0.08 - own, samples_per_s=400.0)

    watcher = started(Training(ranks=4, change=stages))
    watcher.watch(300 - 12)
    assert watcher.raised == {}
    watcher.watch(120)
    assert watcher.found["slowed-rank"][1].subject == "rank 0"
    assert watcher.raised["slowed-rank"] - 300 <= 120


def test_a_loss_that_falls_no_more_is_on_a_plateau() -> None:
    flat = Training(change=lambda s, t: replace(s, loss=1.5 + 0.01 * math.sin(t * 1.7)))
    watcher = started(flat, Thresholds(plateau_s=300.0))
    watcher.watch(400)
    assert "stayed at 1.5 for 5 min" in watcher.found["loss-plateau"][1].what
    falling = started(Training(noise=0.02), Thresholds(plateau_s=300.0))
    falling.watch(400)
    assert "loss-plateau" not in falling.found


def test_a_world_that_is_twice_as_large_and_no_faster_scales_poorly() -> None:
    def change(sample: RankSample, at_s: float) -> RankSample:
        rate = 400.0 if sample.attempt == 1 else 210.0
        return replace(sample, samples_per_s=rate, comm_s=0.01, step_time_s=0.08)

    training = Training(ranks=2, change=change)
    watcher = started(training)
    watcher.watch(150)
    training.end("resized")
    training.ranks = 4
    training.start()
    watcher.watch(180)
    assert "4 ranks work at 52 % of the efficiency of 2" in watcher.found["poor-scaling"][1].what


def test_a_node_that_is_nearly_full_is_reported_with_its_ranks() -> None:
    training = Training()
    watcher = started(training)
    for _ in training.go(60):
        nodes(training, 60 * GIB)
        watcher.look()
    found = watcher.found["node-memory"][1]
    assert found.what == "Node 10.0.0.0 (ranks 0, 1) uses 94 % of its memory"
    assert watcher.raised["node-memory"] <= 12 + 32


@pytest.mark.parametrize(
    ("kind", "part", "used", "severity"),
    [
        ("node-disk", "disk", 89, None),
        ("node-disk", "disk", 91, Severity.WARNING),
        ("node-disk", "disk", 96, Severity.CRITICAL),
        ("object-store", "object_store", 89, None),
        ("object-store", "object_store", 99, Severity.WARNING),
    ],
)
def test_disk_or_object_store_that_is_nearly_full_is_reported(
    kind: str, part: str, used: int, severity: Severity | None
) -> None:
    training = Training()
    watcher = started(training)
    of = {f"{part}_used_bytes": used * GIB, f"{part}_total_bytes": 100 * GIB}
    for _ in training.go(90):
        nodes(training, GIB, **of)
        watcher.look()
    if severity is None:
        assert kind not in watcher.found
        return
    found = watcher.found[kind][1]
    assert (found.subject, found.severity) == ("node 10.0.0.0", severity)
    assert found.what == f"Node 10.0.0.0 uses {used} % of its {part.replace('_', ' ')}"
    assert 30 <= watcher.raised[kind] - 12 <= 62


def test_disk_that_nodes_share_is_reported_once() -> None:
    training = Training()
    training.start()
    full = Node("a", "127.0.0.2", "host", False, True, disk_used_bytes=99, disk_total_bytes=100)
    shared = (
        full,
        replace(full, id="b", ip="127.0.0.3"),
        replace(full, id="c", ip="127.0.0.4", hostname="other"),
    )
    training.tell(NodesListed(at_s=training.clock, source="ray", nodes=shared))
    found = memory.find(training.store, training.run, Thresholds())
    assert [it.subject for it in found] == ["node 127.0.0.4", "node 127.0.0.2"]


def test_memory_that_grows_on_a_node_is_reported_before_it_is_full() -> None:
    def leak(sample: RankSample, at_s: float) -> RankSample:
        return replace(sample, memory_bytes=int(2 * GIB + at_s * 8e6))

    training = Training(change=leak)
    watcher = started(training)
    for _ in training.go(760):
        nodes(training, int(30 * GIB + training.now_s * 16e6))
        if training.now_s > 600:
            watcher.look()
    what = watcher.found["node-memory"][1].what
    # 16 MB a second are 916 MiB per minute; of the 64 GiB about 24 are left then.
    assert "grows by 916 MiB per minute: full in 27 min" in what


def test_gpus_that_no_rank_holds_are_reported() -> None:
    training = Training(gpus=True)
    watcher = started(training)
    for _ in training.go(150):
        nodes(training, GIB, gpus=4)
        watcher.look()
    assert watcher.found["unused-gpus"][1].what == "2 GPUs are held by no rank"
    assert "unused-gpus" in watcher.raised


def test_reports_of_ray_are_ignored_once_ray_is_stale() -> None:
    training = Training(gpus=True)
    watcher = started(training)
    nodes(training, 63 * GIB, gpus=4)
    for _ in training.go(200):
        if training.now_s > 30:
            watcher.look()
    assert watcher.found == {}


def test_a_run_that_only_reports_and_stops_is_reported() -> None:
    training = Training(change=lambda s, t: None)
    watcher = started(training)
    for second in range(1_200):
        training.now_s += 1
        training.healthy()
        if second < 200 and second % 10 == 0:
            training.tell(
                MetricsReported(
                    at_s=training.clock, source="telemetry", run_id=RUN, attempt=1,
                    metrics={"loss": 1.0 / (second + 1)},
                )
            )  # fmt: skip
        if second % 5 == 0:
            watcher.look()
    assert set(watcher.raised) == {"no-report"}
    assert "Reports come every 10 s; threshold 120 s" in watcher.found["no-report"][1].why


@pytest.mark.parametrize("goes_on", [True, False])
def test_no_report_is_due_between_two_attempts_of_a_run_that_only_reports(goes_on: bool) -> None:
    training = Training(change=lambda s, t: None)
    watcher = started(training)

    def report(seconds: int, every_s: int = 20) -> None:
        for second in range(seconds):
            training.now_s += 1
            training.healthy()
            if second % every_s == every_s - 1:
                training.tell(
                    MetricsReported(
                        at_s=training.clock, source="telemetry", run_id=RUN,
                        attempt=training.attempt, metrics={"loss": 1.0 / training.now_s},
                    )
                )  # fmt: skip
            watcher.look()

    report(200)
    training.end("its node died")
    training.now_s += 1_000
    training.start()
    report(100)
    report(300, every_s=20 if goes_on else 1_000)
    assert set(watcher.raised) == (set() if goes_on else {"no-report"})


def test_an_attempt_that_makes_no_first_step_is_reported() -> None:
    training = Training()
    watcher = started(training)
    watcher.watch(60)
    training.end("died")
    training.start()
    watcher.idle(620)
    assert set(watcher.raised) == {"slow-start"}
    assert "Attempt 2 has been up for 601 s without a step" in watcher.found["slow-start"][1].what


def test_low_goodput_names_its_largest_losses() -> None:
    training = Training()
    watcher = started(training, Thresholds(goodput_after_s=300.0))
    watcher.watch(120)
    training.end("died")
    training.now_s += 120
    training.start()
    watcher.watch(150)
    what = watcher.found["low-goodput"][1].what
    # At 300 s: 132 s of them for the restart, 13 for the start.
    assert what == "Goodput is 51 %: restart after failure 44 %, starting 4 %"


def test_checkpoints_that_stop_coming_are_reported() -> None:
    training = Training(saves=60.0)
    watcher = started(training, Thresholds(checkpoint_age_s=200.0))
    watcher.watch(190)
    assert watcher.found == {}
    training.saves = 1e9
    watcher.watch(250)
    assert set(watcher.raised) == {"old-checkpoint"}
    assert "The newest checkpoint is old: 2,0" in watcher.found["old-checkpoint"][1].what


def test_a_run_that_waits_for_resources_has_no_findings() -> None:
    training = Training()
    scheduling(training, "waits for resources: 4 workers need 4 CPU and the cluster has 2")
    watcher = Watcher(training)
    watcher.idle(700)
    assert watcher.found == {}


TIMED_OUT = "WorkerGroupStartupTimeoutError: The worker group startup timed out after 60.0 seconds"


def scheduling(training: Training, message: str = "", state: str = "SCHEDULING") -> None:
    training.tell(
        RunSeen(
            at_s=training.clock, source="telemetry", run_id=RUN, name="r",
            state=RunState(state), submission_id="ddp-1", message=message,
        )
    )  # fmt: skip


def tried_again(watcher: Watcher, times: int) -> None:
    """As Ray Train does it: a minute each, and no attempt begins or ends."""
    for _ in range(times):
        scheduling(watcher.training)
        watcher.idle(60)
        scheduling(watcher.training, TIMED_OUT, "RESCHEDULING")
        watcher.idle(1)


def test_ranks_that_do_not_come_up_again_and_again_are_reported() -> None:
    watcher = Watcher(Training())
    tried_again(watcher, 8)
    assert set(watcher.raised) == {"stuck-start"}
    assert watcher.raised["stuck-start"] <= 155
    at_s, finding = watcher.found["stuck-start"]
    assert at_s == 121
    assert finding.what == (
        f"The ranks have not started after 121 s; the run is SCHEDULING: {TIMED_OUT}"
    )
    assert "cockpit stop ddp-1" in finding.todo
    assert watcher.cleared == {}
    training = watcher.training
    training.start()
    watcher.watch(60)
    assert set(watcher.cleared) == {"stuck-start"}


def test_ranks_that_do_not_come_back_are_reported_from_the_end_of_their_attempt() -> None:
    watcher = started(Training())
    watcher.watch(200)
    training = watcher.training
    training.end("rank 1 died")
    watcher.idle(1)
    ended_s = training.now_s - 1
    tried_again(watcher, 3)
    at_s, finding = watcher.found["stuck-start"]
    assert at_s == ended_s + 121
    assert "not restarted after 121 s" in finding.what


def test_run_whose_lost_node_does_not_come_back_is_reported() -> None:
    watcher = started(Training())
    watcher.watch(200)
    training = watcher.training
    training.end("the node of rank 1 is reclaimed")
    scheduling(training, "waits for resources: 2 workers need 2 CPU and the cluster has 1")
    watcher.idle(200)
    _, finding = watcher.found["stuck-start"]
    assert "2 workers need 2 CPU and the cluster has 1" in finding.what
    assert finding.todo.startswith("See why pods are missing: cockpit pods")
    assert set(watcher.raised) == {"stuck-start"}


def test_a_start_that_waited_for_a_node_and_has_it_now_is_no_trouble() -> None:
    training = Training()
    scheduling(training, "waits for resources: 2 workers need 2 CPU and the cluster has 1")
    watcher = Watcher(training)
    watcher.idle(300)
    scheduling(training, TIMED_OUT, "RESCHEDULING")
    watcher.idle(1)
    scheduling(training)
    watcher.idle(20)
    training.start()
    watcher.watch(100)
    assert watcher.raised == {}


def test_fatal_xid_of_dcgm_is_left_out_only_for_the_gpu_whose_rank_reports_one() -> None:
    def xids(own: int | None) -> list[str]:
        training = Training(
            gpus=True, change=lambda s, t: replace(s, gpu_xid=own) if s.rank == 1 else s
        )
        training.start()
        for _ in training.go(2):
            pass
        gpus = tuple(GpuActivity("10.0.0.0", str(number), xid=79) for number in (0, 1))
        training.tell(GpuActivityListed(at_s=training.clock, source="prometheus", gpus=gpus))
        found = gpus_find(training.store, training.run, Thresholds())
        return [finding.subject for finding in found if finding.kind == "gpu-xid"]

    of_dcgm = ["GPU 0 of 10.0.0.0", "GPU 1 of 10.0.0.0"]
    assert xids(None) == of_dcgm
    assert xids(31) == ["rank 1", *of_dcgm], "31 is harmless"
    assert xids(79) == ["rank 1", of_dcgm[0]]
