"""What libraries are told by the environment of a rank's process, before they start in it."""

from __future__ import annotations

import os

from training.loop.settings import TrainSettings
from training.techniques import memory, network


def variables(settings: TrainSettings) -> dict[str, str]:
    """None for settings as they are by default: a process that Ray has in reserve has none."""
    return network.variables(settings) | memory.variables(settings)


def enter(settings: TrainSettings) -> None:
    """Tell this process itself, which has neither a process group nor used a GPU yet.

    Raises NoInterface when this host lacks the one that was asked for.
    """
    network.check(settings.interface, network.interfaces())
    os.environ.update(variables(settings))
