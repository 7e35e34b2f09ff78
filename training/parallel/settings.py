"""How a model is parted, for the jobs that part one."""

from __future__ import annotations

from dataclasses import dataclass

from training.settings import setting


@dataclass(frozen=True)
class ShardSettings:
    """Sharding"""

    shards: int = setting(
        0,
        "ranks that share a copy of the model, when there are several (HSDP); 0: one copy",
        at_least=0,
    )
    reshard_after_forward: bool = setting(
        True, "drop a block's weights after its forward pass, and gather them again to go back"
    )
    cpu_offload: bool = setting(False, "with a GPU: keep weights and optimiser in host memory")
    checkpoint_form: str = setting(
        "sharded",
        "sharded: each rank writes its part, any number of ranks reads them; "
        "full: rank 0 writes the whole, as the ddp jobs do",
        ("sharded", "full"),
    )


@dataclass(frozen=True)
class ZeroSettings:
    """ZeRO"""

    zero_stage: int = setting(
        2, "in parts of the ranks: 1: optimiser state, 2: gradients too, 3: weights too"
    )


@dataclass(frozen=True)
class PipelineSettings:
    """Pipeline"""

    pipeline: str = setting(
        "1f1b",
        "gpipe: all forward passes, then all backward; 1f1b: by turns, in less memory",
        ("gpipe", "1f1b"),
    )
