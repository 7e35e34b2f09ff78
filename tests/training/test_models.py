"""The models: those of their papers to the last parameter; what they fit, and what they need."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from training.checkpoint.in_folder import FolderCheckpoints
from training.data import synthetic
from training.data.examples import Batch
from training.loop.flops import flops
from training.loop.settings import TrainSettings
from training.loop.train import train
from training.loop.world import alone
from training.models import DoesNotFit, blocks, build
from training.models.gpt import GPT
from training.models.gpt import SIZES as GPT_SIZES
from training.models.settings import FOR_IMAGES, FOR_TOKENS, ModelSettings
from training.models.transformer import Layer, Size
from training.models.vit import ViT
from training.parallel.single_device import whole
from training.techniques.blocks import compute_again
from training.telemetry.worker.flops import transformer_flops_per_token

pytestmark = pytest.mark.usefixtures("one_thread")

LARGE = ("gpt-124m", "gpt-small", "vit-base", "vit-small", "resnet34", "resnet101", "resnet152")
"""Built without memory: what they are made of is in the others too."""


def model_of(name: str, shape: tuple[int, ...], classes: int, **settings: Any) -> nn.Module:
    with torch.device("meta" if name in LARGE else "cpu"):
        return build(ModelSettings(model=name, **settings), shape, classes)


def examples_of(name: str, shape: tuple[int, ...], classes: int) -> Tensor:
    with torch.device("meta" if name in LARGE else "cpu"):
        if len(shape) == 1:
            return torch.randint(classes, (2, *shape))
        return torch.randn(2, *shape)


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", FOR_IMAGES)
def test_images_become_logits_and_every_weight_learns(name: str) -> None:
    for shape in [(1, 20, 16), (3, 64, 64)]:
        model = model_of(name, shape, 7)
        logits = model(examples_of(name, shape, 7))
        assert logits.shape == (2, 7)
        logits.square().sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("name", FOR_TOKENS)
def test_tokens_become_logits_of_the_next_ones_and_every_weight_learns(name: str) -> None:
    model = model_of(name, (12,), 11)
    logits = model(examples_of(name, (12,), 11))
    assert logits.shape == (2, 12, 11)
    logits.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("name", FOR_IMAGES + FOR_TOKENS)
def test_a_model_is_a_row_of_blocks_that_hold_most_of_its_work(name: str) -> None:
    """So that operations by block, such as sharding and recomputation, cover most of it."""
    shape = (32,) if name in FOR_TOKENS else (3, 32, 32)
    model = model_of(name, shape, 10)
    row = blocks(model)
    assert len(row) > 1
    own = [parameter for block in row for parameter in block.parameters()]
    assert len({id(parameter) for parameter in own}) == len(own), "no weight is in two blocks"
    assert {id(parameter) for parameter in own} < {id(item) for item in model.parameters()}
    convolved = sum(item.numel() for item in own if item.ndim >= 2)
    elsewhere = [item for item in model.parameters() if id(item) not in {id(each) for each in own}]
    assert convolved > 0.5 * sum(item.numel() for item in elsewhere if item.ndim >= 2)


@pytest.mark.parametrize("name", FOR_IMAGES + FOR_TOKENS)
def test_a_model_is_what_is_before_its_blocks_then_they_then_what_is_after(name: str) -> None:
    """So that a pipeline can place them on several devices."""
    torch.manual_seed(0)
    shape = (16,) if name in FOR_TOKENS else (1, 16, 16)
    model: Any = model_of(name, shape, 10).eval()
    inputs = examples_of(name, shape, 10)
    states = model.before(inputs)
    for block in blocks(model):
        states = block(states)
    answers, whole = model.after(states), model(inputs)
    assert answers.shape == whole.shape
    if not answers.is_meta:
        assert torch.equal(answers, whole)
        assert float(whole.detach().std()) > 0 or name.startswith("vit"), "its head starts at 0"


@pytest.mark.parametrize("name", ["convnet", "resnet18", "vit-tiny", "gpt-tiny"])
def test_blocks_are_found_again_when_they_were_wrapped(name: str) -> None:
    shape = (8,) if name in FOR_TOKENS else (1, 8, 8)
    model = model_of(name, shape, 10)
    names = list(model.state_dict())
    compute_again(model)
    assert {type(block).__name__ for block in blocks(model)} == {"CheckpointWrapper"}
    assert list(model.state_dict()) == names


@pytest.mark.parametrize(
    ("name", "shape", "classes", "expected"),
    [
        # Those that torchvision 0.29 documents for its weights.
        ("resnet18", (3, 224, 224), 1000, 11_689_512),
        ("resnet34", (3, 224, 224), 1000, 21_797_672),
        ("resnet50", (3, 224, 224), 1000, 25_557_032),
        ("resnet101", (3, 224, 224), 1000, 44_549_160),
        ("resnet152", (3, 224, 224), 1000, 60_192_808),
        ("vit-base", (3, 224, 224), 1000, 86_567_656),
        # GPT-2 small: 50257·768 + 1024·768 + 12·(12·768² + 13·768) + 2·768.
        ("gpt-124m", (1024,), 50257, 124_439_808),
    ],
)
def test_a_model_has_the_parameters_of_its_paper(
    name: str, shape: tuple[int, ...], classes: int, expected: int
) -> None:
    with torch.device("meta"):
        assert parameters(build(ModelSettings(model=name), shape, classes)) == expected


def test_gpt_answers_as_gpt_2_does_with_the_same_weights() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    size = Size(layers=2, heads=3, width=24)
    config = GPT2Config(vocab_size=50, n_positions=16, n_embd=24, n_layer=2, n_head=3)
    other: nn.Module = GPT2LMHeadModel(config)
    other.eval()
    own = GPT(size, 16, 50).eval()
    names = {
        "tokens.": "transformer.wte.",
        "places.": "transformer.wpe.",
        "layers.": "transformer.h.",
        "attention_norm": "ln_1",
        "attention.inputs": "attn.c_attn",
        "attention.output": "attn.c_proj",
        "mlp_norm": "ln_2",
        "mlp.0": "mlp.c_fc",
        "mlp.2": "mlp.c_proj",
    }
    weights = other.state_dict()

    def weight(name: str) -> Tensor:
        found = f"transformer.ln_f.{name[5:]}" if name.startswith("norm.") else name
        for ours, theirs in names.items():
            found = found.replace(ours, theirs, 1)
        if found == "head.weight":
            found = "lm_head.weight"
        value: Tensor = weights[found]
        transposed = ".c_" in found and found.endswith("weight")  # it has them as Conv1D
        return value.T if transposed else value

    own.load_state_dict({name: weight(name) for name in own.state_dict()})
    tokens = torch.randint(50, (2, 16))
    torch.testing.assert_close(own(tokens), other(tokens).logits, rtol=1e-4, atol=1e-5)


def test_vit_answers_as_torchvisions_does_with_the_same_weights() -> None:
    from torchvision.models import VisionTransformer

    other = VisionTransformer(8, 2, 2, 3, 24, 96, num_classes=5).eval()
    nn.init.normal_(other.heads.head.weight)
    own = ViT(Size(layers=2, heads=3, width=24), (3, 8, 8), 5, patch=2).eval()
    names = {
        "patches.": "conv_proj.",
        "places": "encoder.pos_embedding",
        "layers.": "encoder.layers.encoder_layer_",
        "attention_norm": "ln_1",
        "attention.inputs.": "self_attention.in_proj_",
        "attention.output": "self_attention.out_proj",
        "mlp_norm": "ln_2",
        "mlp.2": "mlp.3",
        "head.": "heads.head.",
    }
    weights = other.state_dict()

    def weight(name: str) -> Tensor:
        found = f"encoder.ln.{name[5:]}" if name.startswith("norm.") else name
        for ours, theirs in names.items():
            found = found.replace(ours, theirs, 1)
        return weights[found]  # type: ignore[no-any-return]

    own.load_state_dict({name: weight(name) for name in own.state_dict()})
    images = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(own(images), other(images), rtol=1e-4, atol=1e-5)


def test_gpt_sees_no_token_that_is_still_to_come() -> None:
    model = model_of("gpt-tiny", (10,), 20).eval()
    tokens = torch.randint(20, (1, 10))
    changed = tokens.clone()
    changed[0, 6:] = (changed[0, 6:] + 1) % 20
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :6], after[:, :6])
    assert not torch.allclose(before[:, 6:], after[:, 6:])


def test_gpt_begins_as_gpt_2_does() -> None:
    torch.manual_seed(0)
    size = GPT_SIZES["gpt-small"]
    model = GPT(size, places=64, vocabulary=256)
    assert model.head.weight is model.tokens.weight
    assert float(model.tokens.weight.detach().std()) == pytest.approx(0.02, rel=0.02)
    layer = model.layers[0]
    assert isinstance(layer, Layer)
    assert float(layer.attention.inputs.weight.detach().std()) == pytest.approx(0.02, rel=0.02)
    for weight in layer.adding:
        assert float(weight.detach().std()) == pytest.approx(0.02 / math.sqrt(12), rel=0.02)
    logits = model(torch.randint(256, (4, 64)))
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), torch.randint(256, (256,)))
    assert float(loss.detach()) == pytest.approx(math.log(256), abs=0.2), "it prefers nothing yet"


def test_gpts_head_can_be_its_own() -> None:
    tied, apart = (model_of("gpt-tiny", (8,), 100, tied=tied) for tied in (True, False))
    assert parameters(apart) - parameters(tied) == 100 * 64


@pytest.mark.parametrize(
    ("name", "shape", "why", "fits"),
    [
        ("gpt-tiny", (1, 8, 8), "is for tokens, and these are images", "convnet, simple_cnn, mlp"),
        ("resnet18", (64,), "is for images, and these are tokens", "gpt-tiny, gpt-mini"),
        ("alexnet", (1, 8, 8), "16x16 pixels or more, and these are 8x8", "mlp, resnet18"),
    ],
)
def test_a_model_that_does_not_fit_names_those_that_do(
    name: str, shape: tuple[int, ...], why: str, fits: str
) -> None:
    with pytest.raises(ValueError, match=why) as raised:
        build(ModelSettings(model=name), shape, 10)
    assert fits in str(raised.value).partition("models that fit are ")[2]
    assert name not in str(raised.value).partition("models that fit are ")[2]


@pytest.mark.parametrize("side", [4, 5, 8, 28, 32, 64, 96, 224, 225])
def test_vit_takes_images_of_any_size(side: int) -> None:
    with torch.device("meta"):
        model = build(ModelSettings(model="vit-tiny"), (3, side, side), 10)
        assert model(torch.randn(1, 3, side, side)).shape == (1, 10)


def test_a_patch_that_does_not_fill_the_image_is_refused_with_one_that_does() -> None:
    with pytest.raises(DoesNotFit, match=r"16x16 pixels do not fill an image of 28x28: patch=4 "):
        build(ModelSettings(model="vit-tiny", patch=16), (1, 28, 28), 10)


@pytest.mark.parametrize("name", FOR_TOKENS)
def test_the_flops_counted_of_a_gpt_are_palms(name: str) -> None:
    """To 2 %: biases and norms are parameters, and multiply no matrix."""
    size, length, vocabulary = GPT_SIZES[name], 64, 1000
    model = model_of(name, (length,), vocabulary)
    formula = transformer_flops_per_token(
        parameters(model) - length * size.width,  # positions are looked up, not multiplied
        layers=size.layers,
        heads=size.heads,
        head_size=size.width // size.heads,
        sequence=length,
    )
    counted = flops(model, (examples_of(name, (length,), vocabulary), torch.zeros(2)))
    assert counted / length == pytest.approx(formula, rel=0.02)


def test_the_flops_counted_of_resnet_50_are_those_of_torchvision() -> None:
    """4.09 GFLOPs (a multiplication and addition as one) forward, as torchvision documents; twice
    that backward, except for the first layer's input, which has no gradient.
    """
    with torch.device("meta"):
        model = build(ModelSettings(model="resnet50"), (3, 224, 224), 1000)
    first = 64 * 112 * 112 * 3 * 49
    counted = flops(model, (torch.zeros(1, 3, 224, 224), torch.zeros(1)))
    assert (counted / 2 + first) / 3 == pytest.approx(4.09e9, rel=0.002)


def test_counting_flops_changes_nothing() -> None:
    model = model_of("simple_cnn", (3, 16, 16), 10)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    generator = torch.get_rng_state()
    assert flops(model, (torch.zeros(1, 3, 16, 16), torch.zeros(1))) > 0
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), generator)


@pytest.mark.parametrize(
    "name",
    ["convnet", "simple_cnn", "mlp", pytest.param("resnet18", marks=pytest.mark.slow), "vit"],
)
def test_a_model_of_images_learns_a_batch_of_them(name: str) -> None:
    torch.manual_seed(0)
    data = synthetic.images((1, 8, 8), 3, 16)
    if name == "vit":
        model: nn.Module = ViT(Size(layers=2, heads=2, width=32), data.shape, 3, patch=2)
    else:
        model = model_of(name, data.shape, 3, width=64 if name == "mlp" else 8, dropout=0.0)
    losses = learn(model, [data.train.batch(np.arange(16), None)] * 15)
    assert losses[0] == pytest.approx(math.log(3), abs=0.7)
    assert losses[-1] < 0.3 * math.log(3)


@pytest.mark.slow
def test_gpt_learns_all_that_can_be_known_of_synthetic_tokens() -> None:
    """Its loss approaches the chain's entropy, and on unseen tokens is not below it."""
    torch.manual_seed(0)
    data = synthetic.tokens(length=32, vocabulary=16, examples=2400)
    model = model_of("gpt-tiny", data.shape, data.classes)
    losses = learn(model, [data.train.batch(part, None) for part in np.split(np.arange(2400), 100)])
    assert losses[0] == pytest.approx(math.log(16), abs=0.1)
    with torch.no_grad():
        held_out = loss_of(model, data.held_out.batch(np.arange(300), None))
    assert synthetic.FLOOR - 0.02 < float(held_out) < synthetic.FLOOR + 0.1


def learn(model: nn.Module, batches: list[Batch]) -> list[float]:
    """One step each; returns the losses before them."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    losses = []
    for batch in batches:
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def loss_of(model: nn.Module, batch: Batch) -> Tensor:
    inputs, targets = batch
    return nn.functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())


def test_a_model_with_batch_norm_continues_with_the_statistics_it_had(tmp_path: Path) -> None:
    """They are no weights: without them the resumed run would be evaluated on others."""
    data = synthetic.images((1, 8, 8), 3, 96)
    ends = {}
    for stops in ([8], [4, 8]):
        folder = tmp_path / str(len(stops))
        for stop in stops:
            asked = TrainSettings(
                model="simple_cnn", width=4, workers=1, batch_size=16, epochs=9, max_steps=stop
            )
            with FolderCheckpoints(folder, 0, 1) as checkpoints:
                ends[len(stops)] = train(asked, alone("false"), checkpoints, whole, data)
    saved = [
        torch.load(max((tmp_path / part).glob("checkpoint_*")) / "model.pt", weights_only=True)
        for part in ("1", "2")
    ]
    assert int(saved[0]["features.0.1.num_batches_tracked"]) == 8
    for name, value in saved[0].items():
        np.testing.assert_array_equal(value.numpy(), saved[1][name].numpy(), name)
    assert ends[1]["held_out_loss"] == ends[2]["held_out_loss"]
