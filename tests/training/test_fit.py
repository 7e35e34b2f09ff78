"""The driver's check before a run: whether the cluster has enough resources for its workers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from training.jobs import elastic, fault_tolerant, fsdp2, missing_resources
from training.jobs.fit import check_losses, fit
from training.jobs.missing_resources import Room
from training.jobs.placement import Placement, per_node, scaling

FOUR = Room("CPU", most=4, free=4)


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (
            Room("CPU", most=2, free=2),
            "4 workers take 4 CPU, and the cluster has 2: "
            "launch with --workers 2, or scale the cluster up",
        ),
        (
            Room("GPU", most=0, free=0),
            "4 workers take 4 GPU, and the cluster has 0: scale the cluster up",
        ),
        (
            Room("CPU", most=8, free=3),
            "4 workers take 4 CPU, and the cluster has 8 (3 free): launch with --workers 3",
        ),
        (
            Room("CPU", most=8, free=0),
            "4 workers take 4 CPU, and the cluster has 8 (0 free): end what runs there",
        ),
    ],
)
def test_missing_resources_are_reported_and_awaited_or_fail(
    there: Room, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        missing_resources.report_missing(there, 4, "fail")
    assert ended.value.code == said
    missing_resources.report_missing(there, 4, "wait")
    lacking, todo = said.split(": ")
    assert capsys.readouterr().out == f"{lacking}: waiting for the rest ({todo})\n"


def test_job_is_launched_with_its_own_name_for_workers() -> None:
    with pytest.raises(SystemExit, match=r"8 replicas take 8 CPU.* launch with --replicas 4"):
        missing_resources.report_missing(FOUR, 8, "fail", of="replicas")


def test_an_elastic_run_is_reported_that_its_least_is_what_has_to_fall() -> None:
    with pytest.raises(SystemExit, match=r"^8 workers take 8 CPU.*launch with --min-workers 4"):
        missing_resources.report_missing(FOUR, 8, "fail", flag="min-workers")


def test_a_cluster_that_has_enough_is_not_talked_about(capsys: pytest.CaptureFixture[str]) -> None:
    missing_resources.report_missing(FOUR, 4, "fail")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("gpu", "gpus", "takes"),
    [
        ("auto", 4, "GPU"),
        ("auto", 3, "CPU"),
        ("true", 3, "GPU"),
        ("false", 8, "CPU"),
    ],
)
def test_a_worker_takes_a_gpu_when_asked_to_or_when_there_is_one_for_each(
    gpu: str, gpus: int, takes: str
) -> None:
    assert missing_resources.resource(gpu, 4, gpus) == takes


def test_gpus_of_a_cluster_without_any_are_a_sentence_not_a_wait() -> None:
    with pytest.raises(SystemExit, match="gpu=true, and the cluster has no GPU"):
        missing_resources.resource("true", 4, 0)


class Node:
    def __init__(self, name: str, cpus: float) -> None:
        self.id, self.resources = name, {"CPU": cpus}


def test_half_a_cpu_here_and_half_a_cpu_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes: list[Any] = [Node("a", 1.5), Node("b", 2.5)]
    monkeypatch.setattr("training.recovery.nodes.alive", lambda: nodes)
    monkeypatch.setattr(
        "ray._private.state.available_resources_per_node", lambda: {"a": {"CPU": 0.5}, "b": {}}
    )
    assert missing_resources.room("CPU") == Room("CPU", most=3, free=0)


def test_five_ranks_with_a_fifth_of_a_cpu_fit_into_one() -> None:
    assert per_node({"CPU": 0.2}, {"CPU": 1.0}, strict_spread=False) == 5
    assert per_node({"CPU": 0.1}, {"CPU": 0.3}, strict_spread=False) == 3


def test_reserved_resources_are_counted_by_node(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes: list[Any] = [Node("a", 4), Node("b", 3)]
    nodes[0].resources["memory"] = nodes[1].resources["memory"] = 6 * 2**30
    monkeypatch.setattr("training.recovery.nodes.alive", lambda: nodes)
    monkeypatch.setattr("ray._private.state.available_resources_per_node", lambda: {})
    two = Placement(cpus_per_worker=2)
    assert missing_resources.room("CPU", two).most == 3
    assert missing_resources.room("CPU", replace(two, placement="strict_spread")).most == 2
    assert missing_resources.room("CPU", replace(two, memory_per_worker="4Gi")).most == 2
    with pytest.raises(SystemExit) as ended:
        missing_resources.found(
            "false", 4, "fail", wanted=replace(two, memory_per_worker="4Gi", placement="spread")
        )
    assert ended.value.code == (
        "4 workers take 2 CPU, 4 GiB of memory each, and the cluster has room for 2: "
        "launch with --workers 2, or scale the cluster up"
    )


def test_settings_of_placement_are_what_ray_takes() -> None:
    settings = Placement(
        cpus_per_worker=2,
        gpus_per_worker=0.5,
        memory_per_worker="1.5G",
        placement="strict_spread",
        label_selector="region=in(eu,us),market=!spot",
    )
    assert scaling(settings, "GPU") == {
        "use_gpu": True,
        "resources_per_worker": {"CPU": 2, "GPU": 0.5, "memory": 1.5e9},
        "placement_strategy": "STRICT_SPREAD",
        "label_selector": {"region": "in(eu,us)", "market": "!spot"},
    }
    assert scaling(Placement(), "CPU") == {
        "use_gpu": False,
        "resources_per_worker": {"CPU": 1},
        "placement_strategy": "PACK",
        "label_selector": None,
    }
    assert scaling(Placement(), "GPU")["resources_per_worker"] == {"GPU": 1}


@pytest.mark.parametrize(
    "settings", [Placement(memory_per_worker="lots"), Placement(label_selector="spot")]
)
def test_a_wrong_setting_of_placement_is_a_sentence(settings: Placement) -> None:
    with pytest.raises(SystemExit, match=r"use, for example"):
        scaling(settings, "CPU")


def test_groups_that_a_lost_worker_would_break_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(SystemExit, match=r"--hierarchical 2: .* 3 that are left .*--min-workers 4"):
        fit(dict, elastic.Settings(workers=4, hierarchical=2), "elastic")
    argv = ["fsdp2", "--workers", "2", "--min-workers", "1", "--shards", "2"]
    monkeypatch.setattr("sys.argv", argv)
    with pytest.raises(SystemExit, match=r"--shards 2: .* 1 that are left .*--min-workers 2"):
        fsdp2.main()


@pytest.mark.parametrize(("ranks", "least", "workers"), [(0, 1, 4), (1, 1, 4), (2, 4, 4)])
def test_groups_that_no_lost_worker_breaks_are_let_through(
    ranks: int, least: int, workers: int
) -> None:
    check_losses("hierarchical", ranks, least, workers)


def test_an_elastic_run_reports_what_becomes_of_batch_and_learning_rate() -> None:
    settings = elastic.Settings(workers=4, batch_size=16)
    assert elastic.shared(settings, 4) == (
        "4 of 4 workers: a step has up to 64 examples, 16 a micro-batch of each"
    )
    assert elastic.shared(settings, 3) == (
        "3 of 4 workers: a step has up to 64 examples as with all of them, up to 22 instead of 16 "
        "a micro-batch of each, and the learning rate stays as it is"
    )


@pytest.mark.parametrize(
    "setting", [{"model": "gpt-tiny", "attention": "math"}, {"bucket_mb": 1}], ids=str
)
def test_what_replicas_do_not_have_is_refused(setting: dict[str, Any]) -> None:
    *_, name = setting
    with pytest.raises(SystemExit, match=f"fault_tolerant does not support {name}: leave it out"):
        fault_tolerant.check(fault_tolerant.Settings(**setting))
