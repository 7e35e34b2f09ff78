"""Prices by worker group, the cost of a run and of its lost time, and the alert of its budget."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from cockpit.alerts import settings
from cockpit.cli.output import tables
from cockpit.cli.output.status import cost_so_far, status
from cockpit.cli.read.alerts import sentences
from cockpit.config import file
from cockpit.insight.detectors.findings import findings
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.insight.metrics.diagnosis import diagnosis
from cockpit.insight.metrics.goodput import goodput
from cockpit.insight.metrics.prices import Prices, money_per_hour, parse
from cockpit.model.alert import Severity
from cockpit.model.cluster import KubernetesNode, NodeType, Pod, PodPhase
from cockpit.model.error import UsageError
from cockpit.model.event import KubernetesNodesListed, PodsListed
from cockpit.report.sections.diagnosis import goodput_section
from cockpit.store import history
from cockpit.tui.views.overview import diagnosis_panel
from tests.insight.training_run import Training

PRICES = Prices({"gpu": 36.0, "cpu": 1.8}, currency="EUR")


@pytest.fixture
def training() -> Training:
    """Two ranks on two pods of groups with a price; another pod has no rank."""
    made = Training(node_of=lambda rank: f"10.0.0.{rank}")
    made.start()
    for _ in made.go(60):
        pass
    for number, group in enumerate(("gpu", "cpu", "gpu")):
        pod = Pod(
            f"pod-{number}", group, NodeType.WORKER, PodPhase.RUNNING, True, f"10.0.0.{number}"
        )
        made.store.pods[pod.name] = pod
    return made


def test_only_pods_with_ranks_of_priced_groups_count(training: Training) -> None:
    assert money_per_hour(training.store, training.run, PRICES) == pytest.approx(37.8)
    only_gpu = Prices({"gpu": 36.0})
    assert money_per_hour(training.store, training.run, only_gpu) == 36.0
    assert money_per_hour(training.store, training.run, Prices()) == 0.0


def test_cost_is_the_wall_time_and_its_lost_part_at_the_price(training: Training) -> None:
    spent = diagnosis(training.store, training.run, training.clock, prices=PRICES).cost
    good = goodput(training.run, training.clock)
    assert good is not None
    assert good.useful_s is not None
    assert spent is not None
    assert spent.spent == pytest.approx(good.wall_s * 37.8 / 3600)
    assert spent.lost_money == pytest.approx((good.wall_s - good.useful_s) * 37.8 / 3600)
    assert spent.gpus == 0
    assert spent.text == f"{spent.spent:.2f} EUR, {spent.lost_money:.2f} EUR of it in lost time"
    assert diagnosis(training.store, training.run, training.clock).cost is None


def test_cost_of_lost_time_is_not_known_before_progress_is() -> None:
    training = Training(change=lambda sample, second: None, gpus=True)
    training.start()
    training.now_s += 3_600
    found = diagnosis(
        training.store, training.run, training.clock, limits=Thresholds(price_per_gpu_hour=1.0)
    )
    assert found.cost is not None
    assert found.cost.lost_money is None
    assert found.cost.text == "2.01"
    assert [line for line in sentences(found, []) if line] == [
        "Goodput: unknown 100 %", "Cost so far: 2.01",
    ]  # fmt: skip
    assert "lost" not in diagnosis_panel.facts(found, 80, is_over=False).plain.split()


def hosted(training: Training, *, gpus: tuple[float, ...], node_gpus: float = 8.0) -> None:
    """The pods on the nodes node-0, node-1, …, which have types."""
    store, now_s = training.store, training.clock
    pods = tuple(
        replace(pod, host=f"node-{number}", gpus=gpus[number])
        for number, pod in enumerate(store.pods.values())
    )
    nodes = tuple(
        KubernetesNode(f"node-{number}", True, type=kind, gpus=node_gpus)
        for number, kind in enumerate(("p4d.24xlarge", "p4d.24xlarge", "m5.large"))
    )
    training.tell(KubernetesNodesListed(at_s=now_s, source="backend", nodes=nodes))
    training.tell(PodsListed(at_s=now_s, source="backend", pods=pods))


BY_TYPE = {"p4d.24xlarge": 32.0, "m5.large": 1.0}


@pytest.mark.parametrize(
    ("prices", "per_hour"),
    [
        (Prices(node_hour=BY_TYPE), 32 * 8 / 8 + 32 * 2 / 8),
        (Prices({"cpu": 1.5}, node_hour=BY_TYPE), 32 + 1.5),
        (Prices(node_hour={"m5.large": 1.0}), 0.0),
    ],
)
def test_node_is_priced_by_type_and_by_the_share_of_its_gpus(
    training: Training, prices: Prices, per_hour: float
) -> None:
    """Without a price of the group; the run has ranks on two of the three pods."""
    hosted(training, gpus=(8.0, 2.0, 8.0))
    assert money_per_hour(training.store, training.run, prices) == pytest.approx(per_hour)


def test_node_without_gpus_counts_once_as_a_whole(training: Training) -> None:
    hosted(training, gpus=(0.0, 0.0, 0.0), node_gpus=0.0)
    store = training.store
    pods = tuple(replace(pod, host="node-0") for pod in store.pods.values())
    training.tell(PodsListed(at_s=training.clock, source="backend", pods=pods))
    assert money_per_hour(store, training.run, Prices(node_hour=BY_TYPE)) == 32.0


@pytest.mark.parametrize("prices", [PRICES, Prices(node_hour=BY_TYPE)])
def test_deleted_pods_and_nodes_of_a_run_keep_their_price(
    training: Training, prices: Prices
) -> None:
    hosted(training, gpus=(8.0, 8.0, 8.0))
    before = money_per_hour(training.store, training.run, prices)
    later_s = training.clock + 5.0
    training.tell(PodsListed(at_s=later_s, source="backend", pods=()))
    training.tell(KubernetesNodesListed(at_s=later_s, source="backend", nodes=()))
    assert not training.store.pods
    assert money_per_hour(training.store, training.run, prices) == before > 0


def test_kinds_of_nodes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "NODES_KEPT", 3)
    past = history.Past()
    for number in range(5):
        node = KubernetesNode(f"node-{number}", True, type="m5.large")
        listed = KubernetesNodesListed(at_s=1.0, source="backend", nodes=(node,))
        past.take_kubernetes_nodes({}, listed)
    assert list(past.node_kinds) == ["node-2", "node-3", "node-4"]


def test_failures_cost_the_restart_and_the_redone_steps(training: Training) -> None:
    """Not the start of the run, which no failure caused."""
    none = diagnosis(training.store, training.run, training.clock, prices=PRICES)
    assert none.cost is not None
    assert none.cost.failures_money == 0.0
    assert "failures" not in none.cost.text
    training.end("a rank died", back_by=50)
    training.start()
    for _ in training.go(60):
        pass
    good = goodput(training.run, training.clock)
    assert good is not None
    assert good.failures_s == pytest.approx(
        good.lost_s["restart after failure"] + good.lost_s["redone steps"]
    )
    assert good.failures_s < sum(good.lost_s.values())
    spent = diagnosis(training.store, training.run, training.clock, prices=PRICES).cost
    assert spent is not None
    assert spent.failures_money == pytest.approx(good.failures_s / 3600 * 37.8)
    assert f"({spent.failures_money:.2f} EUR by failures)" in spent.text


def test_report_has_the_cost_of_each_cause(training: Training) -> None:
    good = goodput(training.run, training.clock)
    spent = diagnosis(training.store, training.run, training.clock, prices=PRICES).cost
    assert good is not None
    shown = json.dumps(tables.as_json(goodput_section(good, spent)))
    assert "cost, EUR" in shown
    assert str(round(good.lost_s["starting"] / 3600 * 37.8, 2)) in shown
    assert "cost, EUR" not in json.dumps(tables.as_json(goodput_section(good, None)))


@pytest.mark.parametrize(
    ("part", "severity"), [(0.5, None), (0.95, Severity.WARNING), (1.2, Severity.CRITICAL)]
)
def test_budget_raises_an_alert_from_90_percent(
    training: Training, part: float, severity: Severity | None
) -> None:
    spent = diagnosis(training.store, training.run, training.clock, prices=PRICES).cost
    assert spent is not None
    assert spent.spent is not None
    prices = Prices(PRICES.pod_hour, spent.spent / part, "EUR")
    found = findings(training.store, training.run, training.clock, prices=prices)
    raised = [it for it in found if it.kind == "over-budget"]
    assert [it.severity for it in raised] == ([severity] if severity else [])
    for finding in raised:
        assert finding.what == f"The run has cost {100 * part:.0f} % of its budget"


@pytest.mark.parametrize(
    "raw",
    [
        {"price": 1},
        {"pod_hour": 3},
        {"pod_hour": {"gpu": "much"}},
        {"pod_hour": {"gpu": -1}},
        {"node_hour": {"m5.large": "1 EUR"}},
        {"budget": True},
        {"budget": float("nan")},
        {"currency": 7},
    ],
)
def test_broken_prices_are_refused(raw: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"^cost\."):
        parse(raw)


def test_status_has_the_cost_only_with_prices(training: Training) -> None:
    assert cost_so_far(training.store, training.clock) is None
    assert "cost" not in status(training.store, training.clock)
    file.path().parent.mkdir(parents=True, exist_ok=True)
    file.path().write_text('[cost]\ncurrency = "EUR"\npod_hour = { gpu = 36 }\n')
    found = status(training.store, training.clock)["cost"]
    assert found["spent"] > 0
    assert found["currency"] == "EUR"
    assert settings.parse({}, (), file.read().tables["cost"]).prices.pod_hour == {"gpu": 36.0}
