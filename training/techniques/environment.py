"""Environment variables for libraries of a rank's process, set before they start."""

from __future__ import annotations

import os

from training.loop.settings import TrainSettings
from training.techniques import memory, network


def variables(settings: TrainSettings) -> dict[str, str]:
    """None for default settings: a spare process of Ray has none."""
    return network.variables(settings) | memory.variables(settings)


def enter(settings: TrainSettings) -> None:
    """Set them in this process, before it has a process group or has used a GPU.

    Raises NoInterface if this host lacks the requested interface.
    """
    network.check(settings.interface, network.interfaces())
    os.environ.update(variables(settings))
