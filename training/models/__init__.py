"""The models, by name: plain modules. Parallelism and other techniques are applied from outside."""

from __future__ import annotations

from torch import nn

from training.models.settings import FOR_IMAGES, FOR_TOKENS, ModelSettings
from training.stop import Stop

SMALLEST = {"convnet": 4, "simple_cnn": 8, "alexnet": 16, "resnet": 8, "vit": 4}
"""The expected image size, by the part of a model's name before its size."""


class DoesNotFit(Stop, ValueError):
    """The model does not support such data; the message lists models that do."""


def build(settings: ModelSettings, shape: tuple[int, ...], classes: int) -> nn.Module:
    """For examples of this shape and number of answers: images (n, channels, height, width) to (n,
    classes) logits, tokens (n, tokens) to (n, tokens, classes).

    Raises DoesNotFit if the model does not support them.
    """
    fits = [name for name in FOR_IMAGES + FOR_TOKENS if not why_not(name, shape)]
    if why := why_not(settings.model, shape):
        raise DoesNotFit(f"{settings.model} is {why}: models that fit are {', '.join(fits)}")
    name, width = settings.model, settings.width

    def dropout(usual: float) -> float:
        return usual if settings.dropout < 0 else settings.dropout

    # Each is imported when it is built: torchvision alone takes a second.
    if name == "convnet":
        from training.models.convnet import ConvNet

        return ConvNet(shape, classes, width, dropout(0.2))
    if name == "simple_cnn":
        from training.models.simple_cnn import SimpleCNN

        return SimpleCNN(shape[0], classes, width)
    if name == "mlp":
        from training.models.mlp import MLP

        return MLP(shape, classes, width, dropout(0.2))
    if name == "alexnet":
        from training.models.alexnet import AlexNet

        return AlexNet(shape[0], classes, dropout(0.5))
    if name.startswith("resnet"):
        from training.models.resnet import resnet

        return resnet(name, shape, classes)
    if name.startswith("vit"):
        from training.models.vit import SIZES as VIT_SIZES
        from training.models.vit import ViT, usual_patch

        patch = settings.patch or usual_patch(shape)
        if shape[1] % patch or shape[2] % patch:
            raise DoesNotFit(
                f"patches of {patch}x{patch} pixels do not fill an image of {shape[1]}x{shape[2]}: "
                f"patch={usual_patch(shape)} does"
            )
        return ViT(VIT_SIZES[name], shape, classes, patch, dropout(0.0))
    from training.models.gpt import GPT
    from training.models.gpt import SIZES as GPT_SIZES

    return GPT(GPT_SIZES[name], shape[0], classes, dropout(0.0), tied=settings.tied)


def blocks(model: nn.Module) -> list[nn.Module]:
    """The sequence of blocks of the model, first to last: most of its weights and its work.

    A model that can be a pipeline defines the parts `before` and `after` the blocks: all of it is
    model.after(blocks(model.before(inputs))). Weights are registered in that order.

    Looked up on each call, so that a block that was wrapped in place is the wrapped one.
    """
    return list(model.blocks())  # type: ignore[operator]


def why_not(name: str, shape: tuple[int, ...]) -> str:
    """Why a model does not support examples of that shape; '' if it does."""
    if name in FOR_TOKENS:
        return "" if len(shape) == 1 else "for tokens, and these are images"
    if len(shape) == 1:
        return "for images, and these are tokens"
    least = next((side for part, side in SMALLEST.items() if name.startswith(part)), 1)
    if min(shape[1:]) < least:
        return f"for images of {least}x{least} pixels or more, and these are {shape[1]}x{shape[2]}"
    return ""
