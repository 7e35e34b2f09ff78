"""torchvision's ResNets, with a first layer that is suitable for small images."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock, Bottleneck
from torchvision.models.resnet import ResNet as TorchvisionResNet

LARGE = 64
"""The image size from which the first layer is the one for ImageNet."""

LAYERS = {
    "resnet18": (BasicBlock, [2, 2, 2, 2]),
    "resnet34": (BasicBlock, [3, 4, 6, 3]),
    "resnet50": (Bottleneck, [3, 4, 6, 3]),
    "resnet101": (Bottleneck, [3, 4, 23, 3]),
    "resnet152": (Bottleneck, [3, 8, 36, 3]),
}
"""He and others: Deep Residual Learning for Image Recognition, 2015, table 1."""


class ResNet(TorchvisionResNet):  # type: ignore[misc]  # ships no types
    def blocks(self) -> Iterable[nn.Module]:
        return [*self.layer1, *self.layer2, *self.layer3, *self.layer4]

    def before(self, images: Tensor) -> Tensor:
        states: Tensor = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        return states

    def after(self, states: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.avgpool(states).flatten(1))
        return logits


def resnet(name: str, shape: tuple[int, ...], classes: int) -> ResNet:
    """The last norm of each block starts at 0, so that the block starts as the identity (Goyal and
    others: Accurate, Large Minibatch SGD, 2017, section 5.1).

    A small image skips the 7x7 convolution of stride 2 and the pool after it, which would leave a
    quarter of each side: a 3x3 one of stride 1 takes their place, as He and others do for CIFAR
    (section 4.2).
    """
    block, layers = LAYERS[name]
    model = ResNet(block, layers, num_classes=classes, zero_init_residual=True)
    channels, height, width = shape
    small = min(height, width) < LARGE
    if small or channels != 3:
        kernel, stride = (3, 1) if small else (7, 2)
        model.conv1 = nn.Conv2d(
            channels, 64, kernel, stride=stride, padding=kernel // 2, bias=False
        )
        nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    if small:
        model.maxpool = nn.Identity()
    return model
