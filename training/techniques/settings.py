"""The techniques that any job can enable."""

from __future__ import annotations

from dataclasses import dataclass

from training.settings import setting


@dataclass(frozen=True)
class OptimizerSettings:
    """Optimizer"""

    optimizer: str = setting("adamw", "optimizer", ("adamw", "sgd"))
    learning_rate: float = setting(2e-3, "peak learning rate")
    weight_decay: float = setting(
        0.01, "weight decay of matrices and kernels, not of biases and norms", at_least=0.0
    )
    momentum: float = setting(
        0.9, "sgd: momentum; adamw: the first beta", at_least=0.0, at_most=0.9999
    )
    fused: bool = setting(
        False,
        "fuse the optimizer step into one kernel; with fp16 it also avoids a wait for the GPU",
    )
    schedule: str = setting(
        "cosine", "schedule of the learning rate", ("cosine", "step", "constant")
    )
    warmup_steps: int = setting(-1, "steps until the peak learning rate; -1: an epoch", at_least=-1)
    decay_every_epochs: int = setting(
        30, "step: epochs until the rate is multiplied by lr_gamma", at_least=1
    )
    lr_gamma: float = setting(
        0.1, "step: factor of the rate at each decay", at_least=0.0, at_most=1.0
    )
    scale_learning_rate: str = setting(
        "none",
        "scale the learning rate with the examples of a step ÷ base_batch",
        ("none", "linear", "sqrt"),
    )
    base_batch: int = setting(
        256, "examples in a step for which learning_rate was chosen", at_least=1
    )
    label_smoothing: float = setting(
        0.0, "share of the target that is spread over all classes", at_least=0.0, at_most=1.0
    )
    clip_norm: float = setting(1.0, "maximum norm of the gradient; 0: no limit", at_least=0.0)
    ema_decay: float = setting(
        0.0,
        "decay of a moving average of the weights for evaluation, such as 0.999; 0: none",
        at_least=0.0,
        at_most=1.0,
    )


@dataclass(frozen=True)
class SpeedSettings:
    """Speed and memory"""

    precision: str = setting(
        "fp32", "precision of computation; weights are fp32", ("fp32", "tf32", "bf16", "fp16")
    )
    accumulate: int = setting(
        1, "micro-batches in a step, whose gradients are accumulated", at_least=1
    )
    activation_checkpointing: bool = setting(False, "recompute each block in the backward pass")
    compile: bool = setting(False, "use torch.compile; the first steps take longer")
    channels_last: bool = setting(False, "use the channels-last memory format for images")
    attention: str = setting(
        "auto", "attention kernel", ("auto", "flash", "efficient", "cudnn", "math")
    )
    memory_fraction: float = setting(
        1.0, "share of each GPU's memory that a rank may use", at_least=0.01, at_most=1.0
    )
    allocator: str = setting("", "value of PYTORCH_ALLOC_CONF, such as expandable_segments:True")


@dataclass(frozen=True)
class NetworkSettings:
    """Between ranks"""

    comm_hook: str = setting(
        "none",
        "DDP communication hook that compresses gradients",
        ("none", "fp16", "bf16", "powersgd"),
    )
    powersgd_rank: int = setting(
        1, "powersgd: rank of the matrices that approximate a gradient", at_least=1
    )
    powersgd_after: int = setting(
        100, "powersgd: number of steps with whole gradients after each start", at_least=2
    )
    hierarchical: int = setting(
        0,
        "number of ranks of a host that reduce first, before the hosts; 0: flat reduction",
        at_least=0,
    )
    bucket_mb: int = setting(25, "MB of gradients in a bucket", at_least=1)
    static_graph: bool = setting(False, "DDP static graph: each step uses the same parameters")
    interface: str = setting("", "network interface of NCCL and gloo, such as eth0")
    infiniband: str = setting("auto", "use InfiniBand for NCCL", ("auto", "on", "off"))
    nccl_algorithm: str = setting(
        "auto", "NCCL algorithm", ("auto", "ring", "tree", "nvls", "collnet")
    )
    nccl_debug: str = setting(
        "auto",
        "NCCL log level; auto: from NCCL_DEBUG",
        ("auto", "version", "warn", "info", "trace"),
    )
    timeout_s: float = setting(
        600.0, "seconds until an unfinished collective is an error", at_least=1
    )
