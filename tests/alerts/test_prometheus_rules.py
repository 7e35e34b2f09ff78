"""cockpit's alerts as rules of Prometheus: the same names, severities and thresholds."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from cockpit.alerts import prometheus_rules, rule_file
from cockpit.cli.main import main
from cockpit.config import paths
from cockpit.insight.detectors.hysteresis import RAISE_AFTER_S
from cockpit.insight.detectors.thresholds import Thresholds
from tests.sources.prometheus_server import need_prometheus
from tests.sources.test_monitoring import RAYS_OWN, names_of_telemetry

MANIFESTS = Path(__file__).parents[2] / "manifests"
FILE = MANIFESTS / "monitoring" / "rules.yml"
RESOURCE = MANIFESTS / "kubernetes" / "components" / "monitoring" / "rules.yaml"
DIAGNOSIS = Path(__file__).parents[2] / "docs" / "diagnosis.md"
MONITORING = DIAGNOSIS.with_name("monitoring.md")
LIMITS = Thresholds()
RULES = tuple(prometheus_rules.alert_rules(LIMITS))


def documented() -> dict[str, str]:
    """By alert, its severities in the tables of docs/diagnosis.md."""
    section = DIAGNOSIS.read_text().partition("## Alerts\n")[2].partition("## Settings\n")[0]
    found = re.findall(r"^\| ((?:`[a-z-]+`(?:, )?)+) \| ([^|]+) \|", section, re.M)
    return {kind: severity for kinds, severity in found for kind in re.findall("[a-z-]+", kinds)}


@pytest.mark.parametrize(("path", "wrapped"), [(FILE, False), (RESOURCE, True)])
def test_files_have_the_thresholds_and_delays_of_the_alerts(path: Path, wrapped: bool) -> None:
    assert path.read_text() == rule_file.text(LIMITS, wrapped), (
        "python -m tests.alerts.test_prometheus_rules writes it"
    )


def test_each_rule_has_the_name_severity_and_delay_of_an_alert_of_cockpits() -> None:
    alerts = documented()
    for rule in RULES:
        assert rule.severity.value in alerts[rule.kind], rule.kind
        assert rule.for_s == RAISE_AFTER_S.get(rule.kind, LIMITS.raise_after_s)
        assert rule.todo
        assert "$labels" in rule.summary


def test_page_lists_each_alert_with_its_rule_or_without_one() -> None:
    section = MONITORING.read_text().partition("## Alerts")[2].partition("###")[0]
    table, _, others = section.partition("These alerts of cockpit have no rule")
    with_rule = set(re.findall(r"`([a-z-]+)`", "".join(re.findall(r"^\|[^|]+", table, re.M))))
    assert with_rule == {rule.kind for rule in RULES}
    without = set(re.findall(r"`([a-z-]+)`", others))
    assert with_rule | without == documented().keys()
    assert not with_rule & without


def test_rules_use_metrics_that_exist() -> None:
    recorded = {rule.record for rule in prometheus_rules.recordings()}
    expressions = " ".join(
        [rule.expr for rule in RULES] + [rule.expr for rule in prometheus_rules.recordings()]
    )
    rays_own = {
        *RAYS_OWN,
        "ray_node_mem_total",
        "ray_memory_manager_worker_eviction_total",
        "ray_node_disk_utilization_percentage",
        "ray_object_store_used_memory",
        "ray_object_store_available_memory",
    }
    asked = set(re.findall(r"\b(?:ray|DCGM|cockpit)[a-z_:]*[_:][A-Za-z_:]+", expressions))
    known = names_of_telemetry().keys() | rays_own | recorded
    assert asked - {"ray_io_cluster", "DCGM_FI_DEV_XID_ERRORS"} <= known


def test_thresholds_of_the_configuration_are_in_the_rules_that_the_verb_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    paths.config_dir().mkdir(parents=True)
    (paths.config_dir() / "config.toml").write_text("[alerts]\nhung_s = 333\nraise_after_s = 0.5\n")
    assert main(["config", "rules"]) == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    rules = {rule["alert"]: rule for rule in printed["groups"][1]["rules"]}
    assert ", 333)" in rules["hung-run"]["expr"]
    assert rules["idle-gpu"]["for"] == "500ms"


RUN = 'run="ab",name="digits"'
SEEN = {"run": "ab", "name": "digits"}


def train(name: str, values: str, **labels: str) -> dict[str, str]:
    more = "".join(f',{key}="{value}"' for key, value in labels.items())
    return {"series": f"ray_cockpit_train_{name}{{{RUN}{more}}}", "values": values}


def constant(value: float) -> str:
    return f"{value:g}x400"


def stepping(values: str = "0+10x400", ranks: int = 4) -> list[dict[str, str]]:
    """A run that is up since time 0, with a step every 10 s (the interval of the test)."""
    return [
        train("running", constant(1)),
        train("attempt_timestamp_seconds", constant(0)),
        *(train("step_timestamp_seconds", values, rank=str(rank)) for rank in range(ranks)),
        *(train("step_time_seconds", constant(1), rank=str(rank)) for rank in range(ranks)),
    ]


@dataclass
class Case:
    """`series`: one value every 10 s. `at`: when it is raised, and `before`: when not yet."""

    kind: str
    series: list[dict[str, str]]
    at: str
    before: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    severity: str = "warning"
    of_run: bool = True


HELD = "0+10x30 300x400"
"""Steps until 300 s, and none after."""
CASES = [
    Case(
        "loss-nan",
        [train("loss", "1 1 1 NaN NaN NaN", rank="1")],
        "30s",
        "20s",
        {"rank": "1"},
        "critical",
    ),
    Case(
        "silent-rank",
        [
            *stepping(ranks=3),
            train("step_timestamp_seconds", HELD, rank="7"),
            train("step_time_seconds", constant(1), rank="7"),
        ],
        "5m40s",
        "5m20s",
        {"rank": "7"},
    ),
    Case("hung-run", stepping(HELD), "7m10s", "7m", severity="critical"),
    Case(
        "slow-start",
        [
            train("running", constant(1)),
            train("attempt_timestamp_seconds", constant(300)),
            train("step_timestamp_seconds", constant(200), rank="0"),
        ],
        "15m20s",
        "15m",
    ),
    Case(
        "stuck-start",
        [train("starting_timestamp_seconds", "0x9 100x400"), train("running", constant(0))],
        "4m20s",
        "4m",
    ),
    Case(
        "no-report",
        [
            train("running", constant(1)),
            train("report_timestamp_seconds", HELD),
            train("report_interval_seconds", constant(30)),
        ],
        "8m20s",
        "8m",
    ),
    Case(
        "straggler",
        [
            *stepping(ranks=4)[:-1],
            train("step_time_seconds", constant(1.5), rank="3"),
            *(train("communication_seconds", constant(0.1), rank=str(rank)) for rank in range(4)),
        ],
        "1m40s",
        "1m",
        {"rank": "3"},
    ),
    Case(
        "input-bound",
        [*stepping(), *(train("data_wait_seconds", constant(0.3), rank=str(r)) for r in range(4))],
        "3m",
        "1m50s",
        severity="info",
    ),
    Case(
        "comm-bound",
        [
            *stepping(),
            *(train("communication_seconds", constant(0.6), rank=str(r)) for r in range(4)),
        ],
        "3m",
        "1m50s",
    ),
    Case(
        "regression",
        [*stepping(), train("samples_per_second", "100x250 50x150", rank="0")],
        "45m",
        "41m",
    ),
    Case(
        "idle-gpu",
        [*stepping(), train("gpu_utilization_percent", constant(1), rank="2")],
        "3m40s",
        "3m",
        {"rank": "2"},
    ),
    Case(
        "gpu-xid",
        [{"series": 'DCGM_FI_DEV_XID_ERRORS{Hostname="n1",gpu="0"}', "values": "0x5 79x20"}],
        "1m",
        "50s",
        {"Hostname": "n1", "gpu": "0", "__name__": "DCGM_FI_DEV_XID_ERRORS"},
        "critical",
        of_run=False,
    ),
    Case("gpu-ecc", [train("gpu_ecc_errors", "0 0 2 2", rank="0")], "20s", "10s", {"rank": "0"}),
    Case(
        "gpu-memory",
        [
            *stepping(),
            train("gpu_memory_bytes", "1000+100x400", rank="0"),
            train("gpu_memory_total_bytes", constant(40_000), rank="0"),
        ],
        "13m",
        "11m",
        {"rank": "0"},
    ),
    Case(
        "node-memory",
        [
            {"series": 'ray_node_mem_used{ip="10.0.0.1"}', "values": "90x5 93x20"},
            {"series": 'ray_node_mem_total{ip="10.0.0.1"}', "values": "100x25"},
        ],
        "1m40s",
        "1m20s",
        {"ip": "10.0.0.1"},
        "critical",
        of_run=False,
    ),
    Case(
        "node-disk",
        [{"series": 'ray_node_disk_utilization_percentage{ip="10.0.0.1"}', "values": "89x5 91x20"}],
        "1m40s",
        "1m20s",
        {"ip": "10.0.0.1"},
        of_run=False,
    ),
    Case(
        "object-store",
        [
            {"series": 'ray_object_store_used_memory{instance="h:8080"}', "values": "80x5 95x20"},
            {
                "series": 'ray_object_store_available_memory{instance="h:8080"}',
                "values": "20x5 5x20",
            },
        ],
        "2m10s",
        "1m50s",
        {"instance": "h:8080"},
        of_run=False,
    ),
    Case(
        "out-of-memory",
        [
            {
                "series": 'ray_memory_manager_worker_eviction_total{instance="h:8080"}',
                "values": "_x5 1x400",
            }
        ],
        "1m10s",
        "40s",
        {"instance": "h:8080"},
        of_run=False,
    ),
    Case(
        "old-checkpoint",
        [
            *stepping(),
            train("checkpoint_timestamp_seconds", "0x3 30x400"),
            train("checkpoint_interval_seconds", constant(30)),
        ],
        "31m",
        "30m",
    ),
    Case("no-checkpoint", stepping(), "30m10s", "30m"),
]


def test_each_rule_has_a_case() -> None:
    assert {case.kind for case in CASES} == {rule.kind for rule in RULES}


def test_each_alert_is_raised_at_its_threshold_and_not_before(tmp_path: Path) -> None:
    """In promtool, with the rules as they are shipped."""
    done = check([raised(case) for case in CASES], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_healthy_run_and_ended_run_raise_nothing(tmp_path: Path) -> None:
    ended = [
        train("running", "1x30 0x400"),
        train("attempt_timestamp_seconds", constant(0)),
        train("starting_timestamp_seconds", constant(0)),
        train("step_timestamp_seconds", HELD, rank="0"),
        train("step_time_seconds", constant(1), rank="0"),
    ]
    healthy = [
        *stepping(),
        train("loss", "5-0.01x400", rank="0"),
        *(train("communication_seconds", constant(0.2), rank=str(rank)) for rank in range(4)),
        *(train("data_wait_seconds", constant(0.1), rank=str(rank)) for rank in range(4)),
        train("samples_per_second", constant(100), rank="0"),
        train("checkpoint_timestamp_seconds", "0+10x400"),
        train("checkpoint_interval_seconds", constant(10)),
    ]
    quiet = [
        {"eval_time": f"{minutes}m", "alertname": rule.kind, "exp_alerts": []}
        for rule in RULES
        for minutes in (6, 20, 60)
    ]
    tests = [
        {"interval": "10s", "input_series": series, "alert_rule_test": quiet}
        for series in (ended, healthy)
    ]
    done = check(tests, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def raised(case: Case) -> dict[str, Any]:
    rule = next(
        rule for rule in RULES if (rule.kind, rule.severity.value) == (case.kind, case.severity)
    )
    labels = {**(SEEN if case.of_run else {}), **case.labels, "severity": case.severity}
    labels.pop("__name__", None)
    checks: list[dict[str, Any]] = [
        {"eval_time": case.at, "alertname": case.kind, "exp_alerts": [{"exp_labels": labels}]}
    ]
    if case.before:
        checks.append({"eval_time": case.before, "alertname": case.kind, "exp_alerts": []})
    return {
        "name": rule.kind,
        "interval": "10s",
        "input_series": case.series,
        "alert_rule_test": checks,
    }


def check(tests: list[dict[str, Any]], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run promtool. Annotations are not compared: their numbers are those of the expression."""
    need_prometheus()
    rules = yaml.safe_load(FILE.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("annotations", None)
    (folder / "rules.yml").write_text(json.dumps(rules))
    document = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "10s",
        # Without it promtool takes the groups in an order that changes from run to run, and an
        # alert that is evaluated before the series it reads is raised one interval late.
        "group_eval_order": [group["name"] for group in rules["groups"]],
        "tests": tests,
    }
    (folder / "tests.yml").write_text(json.dumps(document))
    return subprocess.run(
        ["promtool", "test", "rules", "tests.yml"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def write() -> None:
    """Write both files."""
    for path, wrapped in ((FILE, False), (RESOURCE, True)):
        path.write_text(rule_file.text(LIMITS, wrapped))


if __name__ == "__main__":
    write()
