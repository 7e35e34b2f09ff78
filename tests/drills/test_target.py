"""The targets of a drill, and the message without any."""

from __future__ import annotations

from random import Random

import pytest

from cockpit.drills.faults import catalog
from cockpit.drills.plan.plan import TargetSpec
from cockpit.drills.plan.target import choose
from cockpit.model.error import CockpitError
from cockpit.model.event import SourceHealth
from cockpit.store.store import Store


@pytest.mark.parametrize(
    ("health", "why"),
    [
        (None, "The runs are not known: telemetry has not responded."),
        (
            SourceHealth(at_s=1, source="telemetry", ok=False, error="HTTP 503"),
            "The runs are not known: HTTP 503.",
        ),
        (SourceHealth(at_s=1, source="telemetry", ok=True, absent=True), "No run is active."),
    ],
)
def test_a_source_that_did_not_answer_is_not_taken_for_the_absence_of_a_run(
    health: SourceHealth | None, why: str
) -> None:
    store = Store()
    if health is not None:
        store.apply(health)
    with pytest.raises(CockpitError) as raised:
        choose(store, catalog.fault("rank-kill"), TargetSpec(), Random(1))
    assert raised.value.why == why
