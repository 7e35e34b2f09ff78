"""A recording as a session: its store and its clock are those of the player."""

from __future__ import annotations

from cockpit.backends.without_kubernetes import RecordedBackend
from cockpit.model.cluster import ClusterRef
from cockpit.model.event import Event
from cockpit.recorder.reading.player import Player
from cockpit.session.session import Session

BUDGET_S = 0.09
"""Of each tick of the screen: a long seek is done in parts, and keys are handled between them."""


class ReplaySession(Session):
    """Its store is the player's, and its clock is the moment that is shown."""

    def __init__(self, player: Player) -> None:
        name = player.recording.run.name or player.recording.path.stem
        ref = player.store.ref or ClusterRef("recording", name)
        super().__init__(RecordedBackend(ref), clock=lambda: player.position_s)
        self.store = player.store
        self.player = player

    def dispatch(self, event: Event) -> None:
        """Nothing is added to what was recorded."""

    def drain(self) -> bool:
        """Play up to the clock. Returns whether anything has changed."""
        return self.player.advance(BUDGET_S)

    def close(self) -> None:
        super().close()
        self.player.recording.close()
