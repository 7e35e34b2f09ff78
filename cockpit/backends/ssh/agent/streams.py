"""The streams of a call: answers, a secret, and the end of the connection."""

from __future__ import annotations

import json
import os
import select
import sys
from typing import Any

REFUSED = 120
"""The exit code of a call that was refused; the reason is the last line of its output."""


def put(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def input_ended() -> bool:
    """Whether the connection has ended: then its input has."""
    ready, _, _ = select.select([0], [], [], 0)
    return bool(ready) and not os.read(0, 4096)


def secret() -> str:
    return sys.stdin.readline().strip()
