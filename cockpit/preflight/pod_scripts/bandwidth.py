"""Measure all-reduce between this pod and others, one after the other, with torch.

    bandwidth.py REQUEST

REQUEST is a JSON object: `address` of this pod, `backend` (`gloo` or `nccl`), `wait_s` to wait for
a peer, and `meetings`, each with the name of the `peer`, the `rank` of this pod (0 or 1), the
`master` address and the `port` of rank 0. Prints one JSON document: for each peer the seconds of
the smallest all-reduce (the median), the bytes a second of a large one (the fastest), or the error.

The names of torch's modules are strings, since cockpit itself may not import torch.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import socket
import struct
import sys
import time
from datetime import timedelta
from importlib import import_module
from statistics import median
from typing import Any

from cockpit.drills.pod_scripts.linux.process import ended

GET_ADDRESS = 0x8915
"""SIOCGIFADDR of linux/sockios.h."""
SMALL, FIRST_BYTES, LAST_BYTES, GROWTH = 20, 1 << 16, 1 << 26, 4
LONG_S = 0.25
"""A message that takes as long is large enough to measure the bandwidth."""
TRIES = 3
"""Of a message: when other programs use the CPU, an all-reduce may take 0.1 s longer."""


def interface(address: str) -> str:
    """The network interface with this address; empty if there is none."""
    if address.startswith("127."):
        return "lo"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asked, GET_ADDRESS, struct.pack("256s", name.encode()))
            except OSError:
                continue  # it has no IPv4 address
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return ""


def measure(meeting: dict[str, Any], backend: str, wait_s: float) -> dict[str, Any]:
    torch, dist = import_module("torch"), import_module("torch.distributed")
    wait = timedelta(seconds=wait_s)
    rank = meeting["rank"]
    store = dist.TCPStore(meeting["master"], meeting["port"], 2, rank == 0, wait)
    dist.init_process_group(backend, store=store, rank=rank, world_size=2, timeout=wait)
    device = torch.device("cuda", 0) if backend == "nccl" else torch.device("cpu")

    def now_s() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize()  # what was started before has not ended yet
        return time.monotonic()

    def reduce_s(values: Any) -> float:
        began_s = now_s()
        dist.all_reduce(values)
        return now_s() - began_s

    def least_s(size_bytes: int) -> float:
        """Seconds of the fastest all-reduce; of the first one that is too short to measure."""
        values, found_s = torch.ones(size_bytes // 4, device=device), math.inf
        dist.all_reduce(values)
        for _ in range(TRIES):
            # Both ranks have to stop at the same size.
            longest = torch.tensor([reduce_s(values)], device=device)
            dist.all_reduce(longest, dist.ReduceOp.MAX)
            found_s = min(found_s, float(longest))
            if found_s < LONG_S and size_bytes < LAST_BYTES:
                break
        return found_s

    try:
        number = torch.ones(1, device=device)
        dist.all_reduce(number)
        latency_s = median(reduce_s(number) for _ in range(SMALL))
        size_bytes = FIRST_BYTES
        while (took_s := least_s(size_bytes)) < LONG_S and size_bytes < LAST_BYTES:
            size_bytes *= GROWTH
    finally:
        dist.destroy_process_group()
    return {"latency_s": latency_s, "bytes_per_s": size_bytes / took_s, "error": ""}


def main() -> None:
    request = json.loads(sys.argv[1])
    if name := interface(request["address"]):
        for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ.setdefault(variable, name)
    torch = import_module("torch")  # before the first peer waits
    found = {}
    for meeting in request["meetings"]:
        try:
            found[meeting["peer"]] = measure(meeting, request["backend"], request["wait_s"])
        except Exception as error:  # noqa: BLE001 - reported for this pair; the others are measured
            lines = str(error).strip().splitlines()
            why = lines[0] if lines else type(error).__name__
            found[meeting["peer"]] = {"latency_s": 0.0, "bytes_per_s": 0.0, "error": why}
    print(json.dumps({"torch": torch.__version__, "pairs": found}))


sys.exit(ended(main))
