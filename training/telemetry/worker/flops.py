"""Model FLOPs utilisation: the FLOPs that a model needs, relative to the device's peak.

    mfu = flops per sample · samples per second / peak FLOPs per second

After PaLM (Chowdhery et al. 2022, https://arxiv.org/abs/2204.02311), appendix B: only the FLOPs of
the model's own forward and backward pass count. Recomputation (activation checkpointing) does not
count, so that a slower way to the same step never looks better.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_TERA = 1e12

_PEAKS: tuple[tuple[str, float], ...] = (
    # Dense (without sparsity) matrix FLOPs per second in bfloat16, accumulated in float32, of one
    # GPU; float16 if the tensor cores do not support bfloat16. Data sheets give most of them with
    # 2:4 sparsity: halved here. The first name whose parts are all in the device's name wins.
    # NVIDIA GB200 NVL72 and GB300 NVL72 data sheets: 360 PFLOPS sparse in 72 GPUs.
    ("GB300", 2500.0),
    ("GB200", 2500.0),
    # NVIDIA HGX B300 and B200 data sheets: 36 PFLOPS sparse in 8 GPUs.
    ("B300", 2250.0),
    ("B200", 2250.0),
    # NVIDIA Blackwell architecture brief: HGX B100, 28 PFLOPS sparse in 8 GPUs.
    ("B100", 1750.0),
    # NVIDIA H200 data sheet: 1,671 (NVL) and 1,979 (SXM) sparse.
    ("H200 NVL", 835.5),
    ("H200", 989.5),
    # NVIDIA GH200 data sheet: 1,979 sparse.
    ("GH200", 989.5),
    # NVIDIA H100 data sheet: 1,513 (PCIe), 1,671 (NVL) and 1,979 (SXM) sparse. "NVIDIA H100 80GB
    # HBM3" is the SXM one.
    ("H100 PCIe", 756.5),
    ("H100 NVL", 835.5),
    ("H100", 989.5),
    ("H800 PCIe", 756.5),
    ("H800", 989.5),
    # NVIDIA H20 data sheet.
    ("H20", 148.0),
    # NVIDIA A100 data sheet; A800 is A100 with less NVLink.
    ("A100", 312.0),
    ("A800", 312.0),
    # NVIDIA A30 data sheet.
    ("A30", 165.0),
    # NVIDIA A40 data sheet.
    ("A40", 149.7),
    # NVIDIA RTX A6000: GA102 architecture white paper, appendix.
    ("RTX A6000", 154.8),
    # AWS's A10G (g5) is another chip than A10: EC2 G5 page, 70 dense.
    ("A10G", 70.0),
    # NVIDIA A10 data sheet.
    ("A10", 125.0),
    # NVIDIA A2 data sheet.
    ("A2", 18.0),
    # NVIDIA L40S data sheet: 362.05 dense, 733 sparse.
    ("L40S", 362.05),
    # NVIDIA L40 data sheet: 181.05 dense.
    ("L40", 181.05),
    # NVIDIA L4 data sheet: 242 sparse.
    ("L4", 121.0),
    # Ada architecture white paper, appendix A, float32 accumulation.
    ("RTX 4090", 165.2),
    # GA102 architecture white paper, appendix A, float32 accumulation.
    ("RTX 3090", 71.0),
    # NVIDIA V100 data sheet, float16: V100S 130, SXM2 125, PCIe 112.
    ("V100S", 130.0),
    ("V100 PCIE", 112.0),
    ("V100", 125.0),
    # NVIDIA T4 data sheet, float16.
    ("T4", 65.0),
)


class Model(NamedTuple):
    """The arguments of `telemetry.model`. FLOPs are of the forward and backward pass together."""

    flops_per_sample: float | None = None
    flops_per_token: float | None = None
    peak_flops: float | None = None
    """FLOPs per second of all the rank's devices; None: derived from the device's name."""

    def flops_per_s(self, samples_per_s: float | None, tokens_per_s: float | None) -> float | None:
        """The model's FLOPs on this rank; by token if both are known."""
        if self.flops_per_token is not None and tokens_per_s is not None:
            return self.flops_per_token * tokens_per_s
        if self.flops_per_sample is not None and samples_per_s is not None:
            return self.flops_per_sample * samples_per_s
        return None


def mfu_percent(flops_per_s: float | None, peak_flops: float | None) -> float | None:
    """None if one of them is missing, or the peak is not positive."""
    if flops_per_s is None or peak_flops is None or not peak_flops > 0:
        return None
    return 100.0 * flops_per_s / peak_flops


def peak_flops(device: str) -> float | None:
    """FLOPs per second of a device by its name from CUDA or NVML; None for an unknown one.

    None for a slice of a GPU (MIG): its name does not contain its peak.
    """
    parts = set(re.split(r"[^A-Z0-9]+", device.upper()))
    if "MIG" in parts:
        return None
    for name, tera in _PEAKS:
        if set(name.upper().split()) <= parts:
            return tera * _TERA
    return None


def transformer_flops_per_token(
    parameters: float, *, layers: int = 0, heads: int = 0, head_size: int = 0, sequence: int = 0
) -> float:
    """FLOPs of a decoder-only transformer for one token, forward and backward.

    6·N + 12·L·H·Q·T, PaLM's appendix B: N parameters without embeddings that are only looked up (2
    FLOPs each forward and 4 backward), L layers, H heads of size Q, T tokens in a sequence. The
    second term is dense attention's; without the sizes it is omitted. PaLM does not halve it for
    causal attention. For a mixture of experts N is the number of parameters that one token passes.
    """
    return 6.0 * parameters + 12.0 * layers * heads * head_size * sequence
