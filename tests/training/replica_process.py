"""A replica as a plain process: `python -m tests.training.replica_process FOLDER REPLICA`.

FOLDER has the settings, and the address of the quorum's server as a pickle. With a file as a third
argument it starts to train when that file exists. Appends a line of JSON to
`FOLDER/replica-N.jsonl` for each step that it does.
"""

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


def main() -> None:
    folder, replica = Path(sys.argv[1]), int(sys.argv[2])
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

    if len(sys.argv) > 3:
        lines.write(json.dumps({"ready": True}) + "\n")
        while not Path(sys.argv[3]).exists():
            time.sleep(0.01)
    with (
        patch.object(loop, "Whole", Kept),
        patch.object(telemetry, "step", step),
        patch.object(telemetry, "resume", resume),
    ):
        result = loop.train(
            settings,
            loop.Place(replica, "127.0.0.1", quorum),
            lambda: FolderCheckpoints(folder / "run", 0, 1),
        )
    lines.write(json.dumps({"result": result}) + "\n")


if __name__ == "__main__":
    main()
