"""The model settings of a job."""

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
        "convnet", "model; gpt is for tokens, the others for images", FOR_IMAGES + FOR_TOKENS
    )
    width: int = setting(64, "convnet, simple_cnn, mlp: channels or units of the first layer")
    dropout: float = setting(
        -1.0, "dropout rate; -1: 0.5 in alexnet, 0.2 in convnet and mlp, else 0"
    )
    patch: int = setting(0, "vit: side of a patch in pixels; 0: 16, or less for small images")
    tied: bool = setting(True, "gpt: tie the input and output embeddings, as in GPT-2")
