"""Send held-out examples to a server: accuracy, throughput and latency of its answers."""

from __future__ import annotations

import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle, islice
from threading import local

import numpy as np
from torch import Tensor

from training.data.examples import Data
from training.stop import Stop

TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Checked:
    latencies_s: tuple[float, ...]
    """The latency of each request, shortest first."""
    wall_s: float
    accuracy: float
    """The share of correct answers; for tokens, of the one that follows an example's."""

    def quantile(self, share: float) -> float:
        """Latency in seconds."""
        return self.latencies_s[round(share * (len(self.latencies_s) - 1))]

    def __str__(self) -> str:
        at = ", ".join(
            f"{1e3 * self.quantile(share):.1f} ms at {share:.0%}" for share in (0.5, 0.95, 0.99)
        )
        return (
            f"checked {len(self.latencies_s)} examples: accuracy {self.accuracy:.4f}, "
            f"{len(self.latencies_s) / self.wall_s:.0f} requests/s, latency {at}"
        )


def check(host: str, port: int, data: Data, requests: int, at_once: int) -> Checked:
    """Send the held-out examples one after the other, repeatedly.

    Raises NotAnswered.
    """
    numbers = np.array(list(islice(cycle(range(len(data.held_out))), requests)), np.int64)
    inputs, targets = data.held_out.batch(numbers, None)
    own = local()

    def ask(example: Tensor) -> tuple[int, float]:
        if not hasattr(own, "connection"):
            own.connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        key = "tokens" if data.is_tokens else "image"
        body = json.dumps({key: example.tolist()})
        began_s = time.perf_counter()
        try:
            own.connection.request("POST", "/predict", body)
            response = own.connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise UnansweredRequests(
                f"http://{host}:{port}/predict does not answer: {error}"
            ) from error
        latency_s = time.perf_counter() - began_s
        if response.status != 200:
            raise UnansweredRequests(f"it answered {response.status}: {text[:200].decode()}")
        answer = json.loads(text)
        return (answer["tokens"][0] if data.is_tokens else answer["class"]), latency_s

    began_s = time.perf_counter()
    with ThreadPoolExecutor(at_once) as clients:
        answers = list(clients.map(ask, inputs))
    wall_s = time.perf_counter() - began_s
    right = targets[:, -1] if data.is_tokens else targets
    wrong = sum(given != int(want) for (given, _), want in zip(answers, right, strict=True))
    latencies_s = tuple(sorted(latency_s for _, latency_s in answers))
    return Checked(latencies_s, wall_s, 1 - wrong / len(answers))


class UnansweredRequests(Stop):
    """The server did not answer."""
