"""The table of metrics agrees with the records of the wire and of the model."""

from __future__ import annotations

import subprocess
import sys

from cockpit.model.run import RankSample
from training.telemetry.metric_table import METRICS
from training.telemetry.wire import Steps


def test_metric_is_field_of_both_records() -> None:
    names = {metric.name for metric in METRICS}
    assert len(names) == len(METRICS)
    assert names <= Steps.__dataclass_fields__.keys()
    assert names <= set(RankSample.__struct_fields__)


def test_each_gauge_has_name_of_its_own_and_description() -> None:
    gauges = [metric for metric in METRICS if metric.gauge]
    assert len({metric.gauge for metric in gauges}) == len(gauges)
    assert all(metric.help for metric in gauges)


def test_wire_and_table_need_only_standard_library() -> None:
    program = (
        "import sys; from training.telemetry import metric_table, wire;"
        "print({name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names)"
    )
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True)
    assert done.stdout, done.stderr
    assert set(done.stdout.split("'")[1::2]) <= {"training", "__main__"}
