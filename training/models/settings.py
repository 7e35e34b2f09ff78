"""What a job asks of its model."""

from __future__ import annotations

from dataclasses import dataclass

from training.settings import setting

FOR_IMAGES = (
    "convnet",
    "simple_cnn",
    "mlp",
    "alexnet",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "vit-tiny",
    "vit-small",
    "vit-base",
)
FOR_TOKENS = ("gpt-tiny", "gpt-mini", "gpt-small", "gpt-124m")


@dataclass(frozen=True)
class ModelSettings:
    """Model"""

    model: str = setting(
        "convnet", "which one; gpt is for tokens, the others for images", FOR_IMAGES + FOR_TOKENS
    )
    width: int = setting(64, "convnet, simple_cnn, mlp: channels or units of the first layer")
    dropout: float = setting(
        -1.0, "share of units left out; -1: 0.5 in alexnet, 0.2 in convnet and mlp, else none"
    )
    patch: int = setting(0, "vit: pixels a side of a patch; 0: 16, or fewer for small images")
    tied: bool = setting(True, "gpt: what reads a token writes it too, as in GPT-2")
