"""The techniques that any job can switch on."""

from __future__ import annotations

from dataclasses import dataclass

from training.settings import setting


@dataclass(frozen=True)
class OptimizerSettings:
    """Optimiser"""

    optimizer: str = setting("adamw", "which one", ("adamw", "sgd"))
    learning_rate: float = setting(2e-3, "its peak")
    weight_decay: float = setting(
        0.01, "of matrices and kernels, not of biases and norms", at_least=0.0
    )
    momentum: float = setting(
        0.9, "sgd: of the gradients; adamw: its first beta", at_least=0.0, at_most=0.9999
    )
    fused: bool = setting(
        False, "the optimiser's step as one kernel; with fp16 it also saves a wait for the GPU"
    )
    schedule: str = setting("cosine", "of the learning rate", ("cosine", "step", "constant"))
    warmup_steps: int = setting(-1, "until the peak is reached; -1: an epoch", at_least=-1)
    decay_every_epochs: int = setting(30, "step: a tenth of the rate after so many", at_least=1)
    scale_learning_rate: str = setting(
        "none", "with the examples of a step ÷ base_batch", ("none", "linear", "sqrt")
    )
    base_batch: int = setting(256, "examples a step that learning_rate was found for", at_least=1)
    label_smoothing: float = setting(
        0.0, "share of the target that all classes divide", at_least=0.0, at_most=1.0
    )
    clip_norm: float = setting(1.0, "longest gradient; 0: any", at_least=0.0)
    ema_decay: float = setting(
        0.0,
        "evaluate a moving average of the weights, as 0.999; 0: none",
        at_least=0.0,
        at_most=1.0,
    )


@dataclass(frozen=True)
class SpeedSettings:
    """Speed and memory"""

    precision: str = setting(
        "fp32", "of what is multiplied; weights are fp32", ("fp32", "tf32", "bf16", "fp16")
    )
    accumulate: int = setting(1, "micro-batches a step, whose gradients are added up", at_least=1)
    activation_checkpointing: bool = setting(False, "compute each block again in the backward pass")
    compile: bool = setting(False, "by torch.compile; the first steps take longer")
    channels_last: bool = setting(False, "lay images out with channels last")
    attention: str = setting(
        "auto", "which kernel", ("auto", "flash", "efficient", "cudnn", "math")
    )
    memory_fraction: float = setting(
        1.0, "of each GPU's memory that a rank may take", at_least=0.01, at_most=1.0
    )
    allocator: str = setting("", "PYTORCH_ALLOC_CONF, as expandable_segments:True")


@dataclass(frozen=True)
class NetworkSettings:
    """Between ranks"""

    comm_hook: str = setting("none", "gradients on the wire", ("none", "fp16", "bf16", "powersgd"))
    powersgd_rank: int = setting(
        1, "powersgd: of the matrices that stand for a gradient", at_least=1
    )
    powersgd_after: int = setting(
        100, "powersgd: whole gradients in so many steps of each start", at_least=2
    )
    hierarchical: int = setting(
        0, "ranks of a host that add up first, then hosts; 0: all at once", at_least=0
    )
    bucket_mb: int = setting(25, "gradients that are sent together", at_least=1)
    static_graph: bool = setting(False, "the same parameters are used in each step")
    interface: str = setting("", "network interface of NCCL and gloo, as eth0")
    infiniband: str = setting("auto", "NCCL over InfiniBand", ("auto", "on", "off"))
    nccl_algorithm: str = setting("auto", "of NCCL", ("auto", "ring", "tree", "nvls", "collnet"))
    nccl_debug: str = setting(
        "auto",
        "what NCCL says; auto: as NCCL_DEBUG says",
        ("auto", "version", "warn", "info", "trace"),
    )
    timeout_s: float = setting(
        600.0, "until a collective that does not end is an error", at_least=1
    )
