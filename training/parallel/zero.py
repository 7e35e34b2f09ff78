"""ZeRO by DeepSpeed: optimiser state (1), gradients (2) and weights (3) distributed over the ranks.

Rajbhandari and others: ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, 2020.
Written for DeepSpeed 0.19, which is an optional dependency.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from training.checkpoint.manifest import Damaged, files
from training.loop.settings import TrainSettings
from training.loop.world import World
from training.parallel import IncompatibleCheckpoint
from training.parallel.settings import ZeroSettings
from training.parallel.single_device import Whole
from training.stop import Stop
from training.techniques.average import Average
from training.techniques.optimizer import optimizer

TAG = "."
"""DeepSpeed's directory within that of a checkpoint: the same."""

CLASSES = (
    ("deepspeed.runtime.fp16.loss_scaler", "LossScaler"),
    ("deepspeed.runtime.zero.config", "ZeroStageEnum"),
    ("deepspeed.utils.tensor_fragment", "fragment_address"),
)
"""What its checkpoints contain besides tensors and plain values."""


def lacking() -> str:
    """What to do if DeepSpeed is not installed; '' if it is."""
    if find_spec("deepspeed"):
        return ""
    return "this job needs DeepSpeed, which is not installed: pip install 'cockpit[deepspeed]'"


class Zero(Whole):
    saves_alone = False

    def __init__(
        self, model: nn.Module, world: World, settings: TrainSettings, zero: ZeroSettings
    ) -> None:
        """Raises Stop if DeepSpeed is not installed, or does not support the settings."""
        if why := lacking() or _cannot(settings):
            raise Stop(why)
        self.casts_itself = settings.precision == "bf16"
        self._world = world
        if self.casts_itself:
            model.register_forward_hook(lambda _, inputs, answers: answers.float())
        os.environ.setdefault("LOCAL_RANK", str(world.local_rank))  # it looks for it only there
        engine, *_ = import_module("deepspeed").initialize(
            model=model.to(world.device),
            optimizer=optimizer(model.parameters(), settings),
            dist_init_required=False,
            config={
                "train_micro_batch_size_per_gpu": settings.batch_size,
                "gradient_accumulation_steps": 1,  # they are weighted, and added up, in `passes`
                "gradient_clipping": settings.clip_norm,
                "torch_autocast": {"enabled": self.casts_itself, "dtype": "bfloat16"},
                "zero_optimization": {"stage": zero.zero_stage},
                "zero_allow_untested_optimizer": True,
                "zero_force_ds_cpu_optimizer": False,
            },
        )
        self._engine = engine
        self.model: nn.Module = engine
        self._saved = engine.checkpoint_engine = _InMemory(engine.checkpoint_engine)

    def optimizer(self, settings: TrainSettings) -> Optimizer:
        return cast("Optimizer", _Steps(self._engine))

    @contextmanager
    def accumulating(self) -> Iterator[None]:
        self._engine.set_gradient_accumulation_boundary(False)
        try:
            yield
        finally:
            self._engine.set_gradient_accumulation_boundary(True)

    def clip(self, longest: float) -> Tensor:
        """DeepSpeed clips it when it steps."""
        zero = self._engine.optimizer
        if hasattr(zero, "scaled_global_norm"):
            length = zero.scaled_global_norm()
        else:
            norms = import_module("deepspeed.runtime.utils").combine_grad_norm_groups
            length = norms(zero._get_norm_groups())
        return torch.as_tensor(length, device=self._world.device).float()

    def states(self, optimizer: Optimizer, average: Average) -> dict[str, Any]:
        self._saved.files.clear()
        with TemporaryDirectory() as folder:  # for two scripts that it adds
            self._engine.save_checkpoint(folder, tag=TAG, save_latest=False)
        return dict(self._saved.files)

    def load(self, directory: Path, optimizer: Optimizer, average: Average) -> None:
        parts = len(list(directory.glob("*zero_pp_rank_*_optim_states.pt")))
        if parts != self._world.size:
            raise IncompatibleCheckpoint(
                f"DeepSpeed saved it for {parts} ranks and reads it with as many, "
                f"not {self._world.size}"
            )
        self._engine.load_checkpoint(str(directory), tag=TAG)


def _cannot(settings: TrainSettings) -> str:
    if settings.precision == "fp16":
        return "deepspeed has its own loss scale and does not report it: use --precision bf16"
    if settings.ema_decay:
        return (
            "deepspeed has the weights in a form that is not averaged: use --ema-decay 0, or fsdp2"
        )
    return ""


class _Steps:
    """Adapt DeepSpeed's engine to the loop's optimiser."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    @property
    def param_groups(self) -> Any:
        return self._engine.optimizer.param_groups

    def step(self) -> None:
        """Also clears the gradients."""
        self._engine.step()

    def zero_grad(self) -> None:
        """`step` has already done it."""


class _InMemory:
    """DeepSpeed's writer of checkpoints, which keeps the files in memory."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.files: dict[str, Any] = {}

    def save(self, state_dict: Any, path: str) -> None:
        self.files[Path(path).name] = state_dict

    def load(self, path: str, map_location: Any = None) -> Any:
        """Load a listed file with an allow-list; DeepSpeed would unpickle any file.

        Raises Damaged, and UnpicklingError for a class that is not on the list.
        """
        file = Path(path)
        if file.name not in files(file.parent):
            raise Damaged(f"{file.name} is not listed in any manifest")
        classes = [getattr(import_module(module), name) for module, name in CLASSES]
        with torch.serialization.safe_globals(classes):
            return torch.load(path, map_location=map_location, weights_only=True)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Nothing is written."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)
