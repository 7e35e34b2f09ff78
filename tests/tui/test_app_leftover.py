"""Faults that a killed cockpit has left, confirmed once the UI is connected."""

from __future__ import annotations

import pytest

from cockpit.backends.protocol import Scaled
from cockpit.drills.engine.journal import Journal
from cockpit.drills.faults.fault import Undo
from cockpit.model.error import UnreachableError
from cockpit.model.scale import ScaleRequest
from tests.drills.test_orphans import DAY_S, KILLED
from tests.simulated_backend import ScriptedBackend
from tests.tui.conftest import Open
from tests.tui.simulated import REF, START_S, digits

SCALE = Undo("scale", "scale workers from 2 back to 3", name="workers", replicas=3, drilled=2)


async def test_stale_undo_is_shown_at_the_start_and_done_on_a_yes_only(cockpit: Open) -> None:
    journal = Journal()
    journal.write("drill-1.1", "scale-down", "demo", REF, (SCALE,), START_S - 3 * DAY_S, KILLED)
    async with cockpit(simulation=digits(kill_s=None)) as seen:
        await seen.sees("Undo the faults of earlier", "drill-1.1", "3 days ago", "back to 3")
        assert seen.simulation.backend.asked == []
        assert len(journal.entries()) == 1
        await seen.press("y")
        await seen.until(lambda: "left scale-down of demo unfinished; done" in str(seen.toasts))
        assert ("scale", "workers", "3") in seen.simulation.backend.asked
    assert journal.entries() == []


async def test_faults_that_were_undone_are_reported_beside_those_that_were_not(
    cockpit: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(self: ScriptedBackend, request: ScaleRequest) -> Scaled:
        raise UnreachableError("Nobody answers.")

    monkeypatch.setattr(ScriptedBackend, "scale", away)
    journal, began_s = Journal(), START_S - 3 * DAY_S
    for number, undo in enumerate((SCALE, Undo("rejoin", "rejoin w-1", name="p"), SCALE)):
        name, at_s = f"drill-{number}.1", began_s + number
        journal.answered(journal.write(name, "fault", "demo", REF, (undo,), at_s, KILLED))
    async with cockpit(simulation=digits(kill_s=None)) as seen:
        await seen.sees("Undo the faults of earlier")
        await seen.press("y")
        await seen.until(lambda: "Drill drill-1.1 left fault of demo unfinished" in seen.toasts)
        assert "2 faults could not be undone." in seen.toasts
        assert "drill-0.1" in seen.toasts
        assert "drill-2.1" in seen.toasts
        assert "Nobody answers." in seen.toasts
    assert len(journal.entries()) == 2
