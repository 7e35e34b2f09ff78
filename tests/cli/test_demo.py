"""The main job: cluster, run, kill, recovery, and nothing left."""

from __future__ import annotations

import json

import pytest

from tests.faults.command import nothing_left, running, uid_of
from tests.local_cluster import separate_state


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timed  # its first checkpoint within 180 s
def test_the_headless_demo_recovers_and_leaves_nothing() -> None:
    with (
        separate_state(),
        running("demo", "--headless", "--seconds=60", "-o", "json") as command,
    ):
        command.saw("registered with Ray")
        uid = uid_of("demo")
        assert command.ends(600) == 0, command.lines
        nothing_left("demo", uid)
    summary = json.loads("\n".join(command.out))
    assert len(summary["cluster"]) >= 3
    assert [rank["rank"] for rank in summary["ranks"]] == [0, 1]
    for rank in summary["ranks"]:
        assert rank["loss_last"] < rank["loss_first"]
        assert rank["samples_per_s"] > 0
        assert rank["steps"] > 0
    assert summary["samples"] > 0
    assert summary["accuracy"] > 0.5
    drill = summary["drill"]
    assert drill["recovered"]
    assert drill["fault"] == "pod-kill"
    assert drill["detected_s"] <= drill["restarted_s"] <= drill["first_step_s"]
    assert drill["steps_lost"] >= 0
    assert drill["resumed_step"] == drill["last_step"] + 1 - drill["steps_lost"]
