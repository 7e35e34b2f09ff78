"""A replica of Ray Serve: it answers with the newest weights, many requests at a time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread
from typing import Any

import torch
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse
from torch import Tensor

from training.loop.world import device
from training.serving.registry import source
from training.serving.request import Asked, Refused, Sampling, asked, largest_bytes, wanted
from training.serving.weights import Weights


@dataclass(frozen=True)
class Serving:
    run_path: str
    gpu: str
    max_batch: int
    batch_wait_s: float
    poll_s: float
    tracking_uri: str = ""
    """Of the driver, for a model of MLflow: a replica does not have its environment."""


class Server:
    def __init__(self, serving: Serving) -> None:
        """Raises Stop or RuntimeError when there is nothing to serve."""
        self._run, self._poll_s = source(serving.run_path, serving.tracking_uri), serving.poll_s
        self._device = device(0, serving.gpu)
        weights = self._run.newest(self._device)
        if weights is None:
            raise RuntimeError(f"no checkpoint in {self._run.path} is whole")
        self._weights = weights
        self._logits.set_max_batch_size(serving.max_batch)
        self._logits.set_batch_wait_timeout_s(serving.batch_wait_s)
        self._ended = Event()
        Thread(target=self._watch, name="newer checkpoints", daemon=True).start()

    def __del__(self) -> None:
        self._ended.set()

    async def __call__(self, request: Request) -> JSONResponse:
        try:
            return JSONResponse(await self._answer(request))
        except Refused as refused:
            return JSONResponse({"error": refused.why}, refused.status)

    async def _answer(self, request: Request) -> dict[str, Any]:
        route = (request.method, request.url.path)
        weights = self._weights
        if route == ("GET", "/healthz"):
            return {"ok": True, "checkpoint": weights.name, "step": weights.made.step}
        if route == ("GET", "/info"):
            return about(weights)
        if route == ("POST", "/predict"):
            question = asked(await body(request, largest_bytes(weights.made)), weights.made)
            if weights.made.takes_tokens:
                return await self._continued(question)
            logits, step = await self._logits(question.inputs)
            return {
                "class": int(logits.argmax()),
                "probabilities": logits.softmax(dim=0).tolist(),
                "step": step,
            }
        if request.url.path in ("/healthz", "/info", "/predict"):
            raise Refused(405, "POST is for /predict, GET for /healthz and /info")
        raise Refused(404, "there are /predict, /healthz and /info")

    async def _continued(self, question: Asked) -> dict[str, Any]:
        """Token by token: a batch contains the current token of any request."""
        generator = torch.Generator().manual_seed(question.sampling.seed)
        tokens, longest = question.inputs, self._weights.made.shape[0]
        for _ in range(question.sampling.new_tokens):
            logits, step = await self._logits(tokens[-longest:])
            tokens = torch.cat([tokens, next_token(logits, question.sampling, generator)])
        return {"tokens": tokens[len(question.inputs) :].tolist(), "step": step}

    @serve.batch  # type: ignore[untyped-decorator]
    async def _logits(self, inputs: list[Tensor]) -> list[tuple[Tensor, int]]:
        """The answer to each example, and the step of the weights: the same for a whole batch."""
        weights = self._weights
        answers = await asyncio.to_thread(partial(logits_of, weights, inputs, self._device))
        return [(answer, weights.made.step) for answer in answers]

    def _watch(self) -> None:
        known = self._weights.checkpoint
        while not self._ended.wait(self._poll_s):
            try:
                newer = self._run.newest(self._device, known)
            # Of any kind, such as a GPU without memory for both models: it is tried again.
            except Exception as why:  # noqa: BLE001
                print(f"a newer checkpoint is not used: {why}", flush=True)
                continue
            if newer is None:
                continue
            known = newer.checkpoint
            if (newer.made.shape, newer.made.classes) != (
                self._weights.made.shape,
                self._weights.made.classes,
            ):
                print(f"{newer.name} is not used: it is of another kind of examples", flush=True)
                continue
            self._weights = newer
            print(f"now serving {newer.name}, of step {newer.made.step}", flush=True)


async def body(request: Request, most_bytes: int) -> bytes:
    """Raises Refused before more than the limit is read."""
    read = bytearray()
    async for part in request.stream():
        read += part
        if len(read) > most_bytes:
            raise Refused(413, f"the body is larger than {most_bytes} bytes")
    return bytes(read)


@torch.inference_mode()
def logits_of(weights: Weights, inputs: list[Tensor], on: torch.device) -> list[Tensor]:
    """The model's output: for images all of it, for tokens that of the last; float32 on the CPU.

    Shorter sequences are padded at their end, which does not affect the tokens before.
    """
    if not weights.made.takes_tokens:
        together = torch.stack(inputs).to(on)
        return list(weights.model(together).float().cpu())
    filled = torch.nn.utils.rnn.pad_sequence(inputs, batch_first=True).to(on)
    last = torch.tensor([len(tokens) - 1 for tokens in inputs], device=on)
    answers = weights.model(filled)[torch.arange(len(inputs), device=on), last]
    return list(answers.float().cpu())


def next_token(logits: Tensor, sampling: Sampling, generator: torch.Generator) -> Tensor:
    """The selected token's number, (1,)."""
    if not sampling.temperature:
        return logits.argmax(dim=0, keepdim=True)
    if sampling.top_k:
        least = logits.topk(sampling.top_k).values[-1]
        logits = logits.masked_fill(logits < least, float("-inf"))
    # Relative to the most likely and in float64: dividing by any temperature above 0 gives no NaN.
    likely = ((logits - logits.max()).double() / sampling.temperature).softmax(dim=0)
    return torch.multinomial(likely, 1, generator=generator)


def about(weights: Weights) -> dict[str, Any]:
    made = weights.made
    return {
        "model": made.model.model,
        "data": made.data.data,
        "shape": list(made.shape),
        "classes": made.classes,
        "checkpoint": weights.name,
        "step": made.step,
        "predict": wanted(made),
    }
