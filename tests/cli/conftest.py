"""What the tests of verbs share."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cockpit.cli.options import connect
from cockpit.session.session import Session

WAIT_S = 120.0


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verbs show what they have after 5 s, which is too early on a busy machine."""
    wait_for = connect.wait_for

    def longer(session: Session, sources: Sequence[str], timeout_s: float = 0.0) -> None:
        wait_for(session, sources, WAIT_S)

    monkeypatch.setattr(connect, "wait_for", longer)
