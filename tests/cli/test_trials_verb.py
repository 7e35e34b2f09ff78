"""`cockpit trials`: one object a trial, the best first and marked."""

from __future__ import annotations

import json

from cockpit.cli.output.tables import as_json
from cockpit.cli.read.trials import rows_of
from cockpit.store.store import Store
from tests.tui.tuned import EXPERIMENT, tuned


def test_each_trial_is_an_object_with_its_result_and_what_it_tried() -> None:
    simulation = tuned(8)
    simulation.advance(60)
    simulation.session.drain()
    rows = rows_of(simulation.session.store)
    assert json.loads(json.dumps(as_json(rows), allow_nan=False)) == as_json(rows)
    assert [row["best"] for row in rows] == [True] + [False] * 7
    first = rows[0]
    assert (first["experiment"], first["metric_name"], first["mode"]) == (
        EXPERIMENT,
        "val_loss",
        "min",
    )
    assert first["metric"] == min(row["metric"] for row in rows if row["metric"] is not None)
    assert first["differs"].keys() == {"lr", "depth"}
    assert [row["metric"] for row in rows[-2:]] == [None, None]
    assert all(row["name"] == row["id"] for row in rows)


def test_without_an_experiment_there_is_nothing() -> None:
    assert rows_of(Store()) == []
