from __future__ import annotations

import json
from pathlib import Path

import pytest

from cockpit import audit
from cockpit.drills.kill import kill, plan_kill
from cockpit.model.error import CockpitError, UsageError
from tests.events import HEAD, ONE, REF, RUN, TWO, before_the_kill, reduced, the_recovery
from tests.simulated_backend import ScriptedBackend


def test_a_plan_names_the_pod_the_ranks_and_what_will_happen() -> None:
    plan = plan_kill(reduced(before_the_kill()), TWO.name, 0.0)
    said = " ".join(plan.lines)
    assert plan.ranks == (1,)
    assert TWO.name in said
    assert "SIGKILL now" in said
    assert "rank 1 of 2 of run demo" in said
    assert "attempt 1 ends near step 50" in said


@pytest.mark.parametrize("target", ["1", "rank:1", "rank-1", TWO.name])
def test_a_rank_means_the_pod_that_it_runs_on(target: str) -> None:
    assert plan_kill(reduced(before_the_kill()), target, 0.0).pod == TWO


def test_a_kill_of_the_head_says_that_every_run_ends() -> None:
    plan = plan_kill(reduced(before_the_kill()), HEAD.name, 30.0)
    assert any("HEAD" in line for line in plan.lines)
    assert "SIGKILL after 30 s" in plan.lines[0]


@pytest.mark.parametrize("target", ["nobody", "7"])
def test_a_target_that_is_not_there_is_answered_with_those_that_are(target: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan_kill(reduced(before_the_kill()), target, 0.0)
    assert ONE.name in caught.value.why or "0, 1" in caught.value.why


def test_a_dead_pod_cannot_be_killed_again() -> None:
    with pytest.raises(CockpitError, match="not running"):
        plan_kill(reduced([*before_the_kill(), *the_recovery()[:2]]), TWO.name, 0.0)


async def test_a_kill_deletes_once_and_leaves_an_audit_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    backend = ScriptedBackend(ref=REF)
    plan = plan_kill(reduced(before_the_kill()), TWO.name, 5.0)
    drill = await kill(backend, plan, lambda: 123.0)
    assert backend.asked == [("delete_pod", TWO.name, "5")]
    assert (drill.fault, drill.injected_s, drill.run_id) == ("pod-delete", 123.0, RUN)
    line = json.loads(audit.path().read_text())
    assert (line["target"], line["cluster"]) == (TWO.name, "local:t")
    assert audit.path().stat().st_mode & 0o777 == 0o600
