"""Parse a request to the model, or report why it cannot be answered."""

from __future__ import annotations

import base64
import binascii
import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from training.loop.recipe import Made

MOST_NEW_TOKENS = 1024
IMAGE, ENCODED, TOKENS = "image", "image_base64", "tokens"


class Refused(Exception):
    """An HTTP status of 400 or above, and a message."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the following tokens are selected."""

    new_tokens: int = 1
    temperature: float = 0.0
    """0: always the most likely token."""
    top_k: int = 0
    """The number of most likely tokens to sample from; 0: all."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    inputs: Tensor
    """An image (channels, height, width), or tokens (n,)."""
    sampling: Sampling


def largest_bytes(made: Made) -> int:
    """The maximum size of a body: a number of an example takes at most 32 characters."""
    return (64 << 10) + 32 * math.prod(made.shape)


def asked(body: bytes, made: Made) -> Asked:
    """Raises Refused."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(400, "the body is not JSON") from None
    if not isinstance(data, dict):
        raise Refused(400, f"the body is not an object: give {wanted(made)}")
    if made.takes_tokens:
        only(data, made, TOKENS, "new_tokens", "temperature", "top_k", "seed")
        return Asked(tokens(data.get(TOKENS), made), sampling(data, made))
    only(data, made, IMAGE, ENCODED)
    if (IMAGE in data) == (ENCODED in data):
        raise Refused(400, f"one of {IMAGE} and {ENCODED} is wanted: give {wanted(made)}")
    image = nested(data[IMAGE], made) if IMAGE in data else decoded(data[ENCODED], made)
    if not np.isfinite(image).all():
        raise Refused(400, "the image has numbers that are not finite")
    return Asked(torch.from_numpy(image), Sampling())


def wanted(made: Made) -> str:
    if made.takes_tokens:
        return f'{{"{TOKENS}": [numbers below {made.classes}]}}'
    return f'{{"{IMAGE}": nested lists of {shape_of(made)} numbers}}'


def shape_of(made: Made) -> str:
    return "x".join(map(str, made.shape))


def only(data: dict[str, Any], made: Made, *names: str) -> None:
    if unknown := [name for name in data if name not in names]:
        raise Refused(400, f"{unknown[0][:40]!r} is not known: give {wanted(made)}")


def nested(value: Any, made: Made) -> np.ndarray[Any, np.dtype[np.float32]]:
    try:
        array = np.array(value)
    except (ValueError, RecursionError):  # adjacent lists of different lengths
        raise Refused(400, f"the image is not {shape_of(made)} numbers") from None
    if array.dtype.kind not in "iuf" or array.shape != made.shape:
        raise Refused(400, f"the image is not {shape_of(made)} numbers")
    with np.errstate(over="ignore"):  # infinite then, and rejected as that
        return array.astype(np.float32)


def decoded(value: Any, made: Made) -> np.ndarray[Any, np.dtype[np.float32]]:
    size_bytes = 4 * math.prod(made.shape)
    try:
        data = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise Refused(400, f"{ENCODED} is not base64") from None
    if len(data) != size_bytes:
        raise Refused(
            400,
            f"{ENCODED} holds {len(data)} bytes, not the {size_bytes} of "
            f"{shape_of(made)} little-endian float32",
        )
    return np.frombuffer(data, "<f4").astype(np.float32).reshape(made.shape)


def tokens(value: Any, made: Made) -> Tensor:
    if not isinstance(value, list) or not value:
        raise Refused(400, f"tokens are wanted: give {wanted(made)}")
    for token in value:
        if type(token) is not int or not 0 <= token < made.classes:
            raise Refused(400, f"{str(token)[:40]} is not a token: give {wanted(made)}")
    return torch.tensor(value)


def sampling(data: dict[str, Any], made: Made) -> Sampling:
    usual = Sampling()
    return Sampling(
        whole(data, "new_tokens", usual.new_tokens, 1, MOST_NEW_TOKENS),
        temperature(data.get("temperature", usual.temperature)),
        whole(data, "top_k", usual.top_k, 0, made.classes),
        whole(data, "seed", usual.seed, 0, 2**63 - 1),
    )


def whole(data: dict[str, Any], name: str, usual: int, least: int, most: int) -> int:
    value = data.get(name, usual)
    if type(value) is not int or not least <= value <= most:
        raise Refused(400, f"{name} is a whole number from {least} to {most}")
    return value


def temperature(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= 100:
        raise Refused(400, "temperature is a number from 0 to 100")
    return float(value)
