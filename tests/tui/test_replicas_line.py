"""The Overview's line on replicas."""

from __future__ import annotations

from cockpit.model.run import Heal, RunState
from cockpit.tui.view_state import ViewState
from cockpit.tui.views.overview.run_panel import facts
from tests.events import RUN, before_the_kill, reduced, run_seen
from tests.store.test_replicas import quorum


def line(*quorums: tuple[float, int, tuple[int, ...], Heal | None]) -> str:
    events = [
        quorum(at_s, n, members, *([heal] if heal else [])) for at_s, n, members, heal in quorums
    ]
    store = reduced([*before_the_kill(), *events])
    shown = facts(ViewState(store, now_s=105.0), store.runs[RUN]).plain
    return next((row for row in shown.splitlines() if row.startswith("replicas")), "")


def test_replicas_of_a_whole_quorum_are_counted() -> None:
    assert line((91.0, 1, (0, 1), Heal(1, 0))) == "replicas   2 of 2  quorum 1"


def test_missing_replica_is_named_with_its_time() -> None:
    found = line((91.0, 1, (0, 1), None), (100.0, 2, (0,), None))
    assert found == "replicas   1 of 2  quorum 2  without rank 1 for 5 s"


def test_healed_replica_is_shown_with_its_source() -> None:
    found = line((91.0, 1, (0, 1), None), (100.0, 2, (0,), None), (104.0, 3, (0, 1), Heal(1, 0)))
    assert found == "replicas   2 of 2  quorum 3  rank 1 healed from rank 0 at step 30"


def test_run_without_replicas_has_no_line() -> None:
    assert line() == ""


def test_run_that_is_over_has_no_line() -> None:
    store = reduced(
        [*before_the_kill(), quorum(91.0, 1, (0, 1)), run_seen(104.0, RunState.FINISHED)]
    )
    assert "replicas" not in facts(ViewState(store, now_s=105.0), store.runs[RUN]).plain
