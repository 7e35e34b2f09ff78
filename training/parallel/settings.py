"""The settings of jobs that distribute a model."""

from __future__ import annotations

from dataclasses import dataclass

from training.settings import setting


@dataclass(frozen=True)
class ShardSettings:
    """Sharding"""

    shards: int = setting(
        0,
        "number of ranks that share a copy of the model (HSDP); 0: one copy",
        at_least=0,
    )
    reshard_after_forward: bool = setting(
        True,
        "free a block's weights after its forward pass, and gather them for the backward pass",
    )
    cpu_offload: bool = setting(
        False, "with a GPU: keep weights and optimizer state in host memory"
    )
    checkpoint_form: str = setting(
        "sharded",
        "sharded: each rank writes its part, any number of ranks can read them; "
        "full: rank 0 writes the whole model, as the ddp jobs do",
        ("sharded", "full"),
    )


@dataclass(frozen=True)
class ZeroSettings:
    """ZeRO"""

    zero_stage: int = setting(
        2, "what is sharded; 1: optimizer state, 2: also gradients, 3: also weights"
    )


@dataclass(frozen=True)
class PipelineSettings:
    """Pipeline"""

    pipeline: str = setting(
        "1f1b",
        "gpipe: all forward passes, then all backward; 1f1b: alternating, in less memory",
        ("gpipe", "1f1b"),
    )
