"""Prices by worker group, the cost of a run and of its lost time, and the alert of its budget."""

from __future__ import annotations

from typing import Any

import pytest

from cockpit.alerts import settings
from cockpit.cli.read.alerts import sentences
from cockpit.cli.read.snapshot import cost_so_far, status
from cockpit.config import file
from cockpit.insight.detectors.findings import findings
from cockpit.insight.detectors.thresholds import Thresholds
from cockpit.insight.metrics.diagnosis import diagnosis
from cockpit.insight.metrics.goodput import goodput
from cockpit.insight.metrics.prices import Prices, money_per_hour, parse
from cockpit.model.alert import Severity
from cockpit.model.cluster import NodeType, Pod, PodPhase
from cockpit.model.error import UsageError
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
    assert "lost" not in diagnosis_panel.facts(found, 80).plain.split()


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
