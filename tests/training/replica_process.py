"""A replica as a plain process."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from training import telemetry
from training.checkpoint.in_folder import FolderCheckpoints
from training.loop.settings import TrainSettings
from training.parallel import single_device
from training.replicas import replica as loop
from training.replicas.messages import QuorumAddress
from training.settings import describe


def settings_of(folder: Path) -> TrainSettings:
    raw = json.loads((folder / "settings.json").read_text())
    known = {item.name for item in describe(TrainSettings)}
    return replace(TrainSettings(), **{name: raw[name] for name in raw if name in known})


def train(folder: Path, replica: int, host: str = "127.0.0.1") -> None:
    """Train as one replica, in a process of its own, at this address of its host.

    `folder` has the settings, and the address of the quorum's server as a pickle. Appends a line of
    JSON to `replica-N.jsonl` for each step, and its output to `replica-N.log`.
    """
    with (folder / f"replica-{replica}.log").open("ab") as log:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(log.fileno(), stream.fileno())
    quorum: QuorumAddress = pickle.loads((folder / "quorum.pickle").read_bytes())
    torch.set_num_threads(1)
    settings = settings_of(folder)
    models: list[nn.Module] = []
    lines = (folder / f"replica-{replica}.jsonl").open("a", buffering=1)

    class Kept(single_device.Whole):
        def __init__(self, model: nn.Module, *args: Any) -> None:
            super().__init__(model, *args)
            models.append(self.model)

    def step(*, loss: Tensor, samples: int, step: int, **_: Any) -> None:
        weights = b"".join(
            item.detach().numpy().tobytes() for item in models[0].state_dict().values()
        )
        line = {
            "t": time.time(),
            "pid": os.getpid(),
            "step": step,
            "loss": float(loss),
            "samples": samples,
            "weights": hashlib.sha256(weights).hexdigest(),
        }
        lines.write(json.dumps(line) + "\n")

    def resume(*, step: int) -> None:
        lines.write(json.dumps({"t": time.time(), "pid": os.getpid(), "resumed": step}) + "\n")

    with (
        patch.object(loop, "Whole", Kept),
        patch.object(telemetry, "step", step),
        patch.object(telemetry, "resume", resume),
    ):
        result = loop.train(
            settings,
            loop.Place(replica, host, quorum),
            lambda: FolderCheckpoints(folder / "run", 0, 1),
        )
    lines.write(json.dumps({"result": result}) + "\n")


if __name__ == "__main__":
    train(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
