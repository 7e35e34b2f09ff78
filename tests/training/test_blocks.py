"""Activation checkpointing: the same gradients from less memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from training.loop.settings import TrainSettings
from training.models import build
from training.techniques import blocks


def passed(*, again: bool, model: str, shape: tuple[int, ...]) -> tuple[nn.Module, int]:
    """After a forward and a backward pass, and the bytes kept in between."""
    torch.manual_seed(0)
    settings = TrainSettings(model=model, width=16, dropout=0.3)
    trainer = build(settings, shape, 10)
    if again:
        blocks.compute_again(trainer)
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    inputs = torch.randint(10, (8, *shape)) if len(shape) == 1 else torch.randn(8, *shape)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = trainer(inputs).float().logsumexp(-1).sum()
    weights = {weight.untyped_storage().data_ptr() for weight in trainer.parameters()}
    torch.autograd.backward(loss)
    return trainer, sum(size for at, size in kept.items() if at not in weights)


@pytest.mark.parametrize(
    ("model", "shape"),
    [("convnet", (1, 8, 8)), ("gpt-tiny", (16,))],
)
def test_the_gradients_are_the_same_with_dropout_and_less_is_kept(
    model: str, shape: tuple[int, ...]
) -> None:
    plain, all_bytes = passed(again=False, model=model, shape=shape)
    again, fewer_bytes = passed(again=True, model=model, shape=shape)
    assert fewer_bytes < all_bytes / 2
    for one, other in zip(plain.parameters(), again.parameters(), strict=True):
        assert one.grad is not None
        torch.testing.assert_close(other.grad, one.grad, rtol=1e-6, atol=1e-7)


def test_checkpoints_go_both_ways() -> None:
    settings = TrainSettings(width=16)
    plain, again = (build(settings, (1, 8, 8), 10) for _ in range(2))
    blocks.compute_again(again)
    assert list(plain.state_dict()) == list(again.state_dict())
    again.load_state_dict(plain.state_dict())
    plain.load_state_dict(again.state_dict())
