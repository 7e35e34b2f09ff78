"""DCGM's GPUs reach the ranks that use them: the mapping, the curves, the diagnosis."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.insight.metrics import gpu_use
from cockpit.model.cluster import Node
from cockpit.model.event import GpuActivityListed
from cockpit.model.run import Placement, RunState
from cockpit.model.tracking import GpuActivity
from cockpit.report.charts.curves import charts
from cockpit.store.gpus import of_placement
from cockpit.tui.views.charts.available_charts import plots_of
from cockpit.tui.views.ranks.columns import fields_of
from cockpit.tui.views.ranks.page_facts import groups
from cockpit.tui.views.ranks.rows import line_of
from tests.events import ONE
from tests.insight.training_run import Training

POD = replace(ONE, ip="10.0.0.2", host="gpu-node-7")
NODES = [Node("id", "10.0.0.2", "trainer", False, True)]


def gpu(
    index: str,
    sm: float,
    node: str = "gpu-node-7",
    *,
    pod: str = "",
    namespace: str = "",
    address: str = "",
) -> GpuActivity:
    return GpuActivity(node, index, sm, pod=pod, namespace=namespace, address=address)


def sm_of(gpus: list[GpuActivity], *ids: int, namespace: str = "team") -> float | None:
    placed = Placement(0, "id", "10.0.0.2", 1, ids)
    found = of_placement(placed, gpus, [POD], NODES, namespace)
    return found.sm_active_percent if found is not None else None


def test_container_numbers_gpus_of_its_pod_from_zero() -> None:
    gpus = [gpu("0", 1.0, pod="other"), gpu("2", 20.0, pod=POD.name), gpu("3", 30.0, pod=POD.name)]
    assert [sm_of(gpus, number) for number in (0, 1, 2)] == [20.0, 30.0, None]


def test_pod_of_same_name_in_other_namespace_is_not_taken() -> None:
    gpus = [gpu("0", 1.0, pod=POD.name, namespace="b", node="x"),
            gpu("1", 2.0, pod=POD.name, namespace="team")]  # fmt: skip
    assert sm_of(gpus, 0) == 2.0


@pytest.mark.parametrize(
    "labels",
    [{"node": "gpu-node-7"}, {"node": "trainer"}, {"node": "x", "address": "10.0.0.2"}],
)
def test_gpu_without_pod_is_found_by_node_and_index(labels: dict[str, str]) -> None:
    gpus = [gpu("0", 1.0, **labels), gpu("1", 2.0, **labels), gpu("1", 9.0, node="elsewhere")]
    assert sm_of(gpus, 1) == 2.0
    assert sm_of(gpus, 4) is None


@pytest.mark.parametrize("labels", [{"node": "trainer"}, {"node": "x", "pod": POD.name}])
def test_gpu_is_found_by_its_uuid(labels: dict[str, str]) -> None:
    gpus = [
        replace(gpu(str(n), float(n), **labels), namespace="team", uuid=f"GPU-{n}") for n in (3, 4)
    ]
    found = of_placement(
        Placement(0, "id", "10.0.0.2", 1, gpu_uuids=("GPU-4",)), gpus, [POD], NODES, "team"
    )
    assert found is not None
    assert found.sm_active_percent == 4.0


def test_several_gpus_of_a_rank_are_a_mean_and_a_sum() -> None:
    gpus = [replace(gpu(str(n), 10.0 * n), nvlink_bytes_per_s=1e9) for n in (1, 2)]
    found = of_placement(Placement(0, "id", "10.0.0.2", 1, (1, 2)), gpus, [POD], NODES)
    assert found is not None
    assert (found.gpu, found.sm_active_percent, found.nvlink_bytes_per_s) == ("1,2", 15.0, 2e9)


def listed(training: Training, sm: float, tensor: float, dram: float) -> GpuActivityListed:
    gpus = tuple(
        GpuActivity("10.0.0.0", str(number), sm, tensor, dram_active_percent=dram,
                    nvlink_bytes_per_s=2e9, pcie_bytes_per_s=1e8)
        for number in range(training.ranks)
    )  # fmt: skip
    return GpuActivityListed(at_s=training.clock, source="prometheus", gpus=gpus)


def trained(sm: float, tensor: float, dram: float) -> Training:
    training = Training(gpus=True)
    training.start()
    for second in training.go(200):
        if not second % 10:
            training.tell(listed(training, sm, tensor, dram))
    return training


@pytest.mark.parametrize(
    ("counters", "bound"),
    [
        ((30.0, 12.0, 20.0), "launch-bound"),
        ((80.0, 12.0, 75.0), "memory-bound"),
        ((80.0, 1.0, 20.0), "tensor cores unused"),
        ((90.0, 60.0, 40.0), "compute-bound"),
    ],
)
def test_busy_gpus_are_explained(counters: tuple[float, float, float], bound: str) -> None:
    training = trained(*counters)
    found = gpu_use.gpu_use(training.run, 120.0)
    assert found is not None
    assert found.bound == bound
    assert f"{counters[1]:.0f} % tensor active" in found.text
    alerts = gpu_use.find(training.run, Thresholds())
    assert [alert.kind for alert in alerts] == ["gpu-underused"] * (bound != "compute-bound")


@pytest.fixture(scope="module")
def launch_bound() -> Training:
    return trained(30.0, 12.0, 20.0)


def test_numbers_of_dcgm_are_columns_facts_and_charts(launch_bound: Training) -> None:
    store, run = launch_bound.store, launch_bound.run
    rank = run.ranks[1]
    line = line_of(store, run, rank, launch_bound.clock)
    shown = {field.column.title: field.cell(line).text for field in fields_of(run)}
    assert (shown["SM"], shown["TENSOR"], shown["MEM BW"]) == ("30 %", "12 %", "20 %")
    assert (shown["NVLINK/S"], shown["PCIE/S"]) == ("1.9 GiB", "95.4 MiB")
    facts = {fact.name: fact.text for name, found in groups(line, rank) for fact in found}
    assert facts["tensor active"] == "12 %"
    assert {"sm_active_percent", "nvlink_bytes_per_s"} <= {plot.curve for plot in plots_of([run])}
    assert "tensor_active_percent" in {getattr(block, "name", "") for block in charts(run).blocks}
    assert run.curves["nvlink_bytes_per_s"].last == 4e9, "of both ranks"


def test_number_that_is_no_longer_scraped_is_not_shown_as_current() -> None:
    training = trained(30.0, 12.0, 20.0)
    training.tell(GpuActivityListed(at_s=training.clock, source="prometheus", gpus=()))
    assert training.run.ranks[0].activity is None
    training.tell(listed(training, 1.0, 1.0, 1.0))
    training.state(RunState.FINISHED)
    training.tell(GpuActivityListed(at_s=training.clock, source="prometheus", gpus=()))
    assert training.run.ranks[0].activity is not None, "the last numbers of a run that is over"
