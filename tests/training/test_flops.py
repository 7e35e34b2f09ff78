"""Model FLOPs utilisation: peaks by name, and PaLM's formula on PaLM's own numbers."""

from __future__ import annotations

import math

import pytest

from training.telemetry.worker.flops import (
    Model,
    mfu_percent,
    peak_flops,
    transformer_flops_per_token,
)


@pytest.mark.parametrize(
    ("name", "tera"),
    [
        ("NVIDIA H200", 989.5),
        ("NVIDIA H200 NVL", 835.5),
        ("NVIDIA H100 80GB HBM3", 989.5),
        ("NVIDIA H100 PCIe", 756.5),
        ("NVIDIA GH200 480GB", 989.5),
        ("NVIDIA B200", 2250.0),
        ("NVIDIA GB200", 2500.0),
        ("NVIDIA A100-SXM4-80GB", 312.0),
        ("NVIDIA A10G", 70.0),
        ("NVIDIA A10", 125.0),
        ("NVIDIA L40S", 362.05),
        ("NVIDIA L4", 121.0),
        ("Tesla V100-SXM2-16GB", 125.0),
        ("Tesla V100-PCIE-32GB", 112.0),
        ("Tesla T4", 65.0),
    ],
)
def test_a_device_is_known_by_the_name_that_its_driver_gives(name: str, tera: float) -> None:
    assert peak_flops(name) == tera * 1e12


@pytest.mark.parametrize(
    "name", ["", "Radeon", "NVIDIA A1000", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "Quadro T400"]
)
def test_the_peak_of_another_device_or_of_a_slice_is_not_guessed(name: str) -> None:
    assert peak_flops(name) is None


def test_palms_own_utilisation_comes_out_of_its_formula() -> None:
    """Table 3 and appendix B: PaLM 540B, 238.3 K tokens/s on 6,144 TPU v4 of 275 TFLOPS: 46.2 %."""
    each = transformer_flops_per_token(540.35e9, layers=118, heads=48, head_size=256, sequence=2048)
    model = Model(flops_per_token=each, peak_flops=6144 * 275e12)
    percent = mfu_percent(model.flops_per_s(None, 238.3e3), model.peak_flops)
    assert percent == pytest.approx(46.2, abs=0.2)


def test_without_the_rate_or_a_peak_there_is_no_utilisation() -> None:
    model = Model(flops_per_sample=1e9)
    assert model.flops_per_s(None, 5.0) is None
    assert model.flops_per_s(10.0, None) == 1e10
    assert mfu_percent(1e10, None) is None
    assert mfu_percent(None, 1e12) is None
    assert mfu_percent(1e10, 0.0) is None
    assert mfu_percent(1e10, math.nan) is None
