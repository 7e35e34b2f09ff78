"""Calls to the agent on a host, over its connection."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import zlib
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

from msgspec import convert

from cockpit.backends.local.requests import refusal
from cockpit.backends.ssh.agent.streams import REFUSED
from cockpit.backends.ssh.connection import Connection, end
from cockpit.format import in_seconds
from cockpit.model.decoding.limited_json import loads
from cockpit.model.error import CockpitError, UnreachableError
from cockpit.model.text import one_line

T = TypeVar("T")
MODULES = (
    *("model/error.py", "model/text.py", "backends/local/pods/process.py"),
    "backends/local/pods/pod_logs.py",
    *(
        f"backends/ssh/agent/{name}.py"
        for name in ("streams", "place", "host", "cluster", "supervisor", "state", "pod", "main")
    ),
)
"""The agent and what it imports, each after what it imports itself: hosts have no cockpit."""
CANNOT_RUN, NOT_FOUND = 126, 127
SILENT_S = 30.0
"""A status is sent at least every 5 s."""
ANSWER_S = 120.0
"""For one answer: the longest call ends all processes of a host."""
_IMPORT = re.compile(
    r"^from (?:__future__|cockpit\.[\w.]+) import (?:\([^)]*\)|.*)\n", re.MULTILINE
)


@cache
def agent_text() -> str:
    texts = [(files("cockpit") / path).read_text(encoding="utf-8") for path in MODULES]
    return "from __future__ import annotations\n" + "".join(_IMPORT.sub("", t) for t in texts)


@cache
def _program() -> str:
    packed = base64.b64encode(zlib.compress(agent_text().encode(), 9)).decode()
    return (
        "import sys;sys.version_info>=(3,9) or sys.exit('Python %d.%d is too old for cockpit and "
        "Ray: 3.10 or newer is needed'%sys.version_info[:2]);"
        f"import base64,zlib;TEXT=zlib.decompress(base64.b64decode('{packed}')).decode();"
        "exec(compile(TEXT,'agent','exec'))"
    )


class Agent:
    """The agent on the host of an open connection, for one cluster."""

    def __init__(self, connection: Connection, cluster: str) -> None:
        self.connection = connection
        name = f"{cluster}\0{connection.host.name}"
        self._key = hashlib.sha256(name.encode()).hexdigest()[:8]

    def argv(self, verb: str, request: Mapping[str, Any]) -> list[str]:
        python = self.connection.host.python
        return [python, "-c", _program(), verb, json.dumps({"key": self._key, **request})]

    async def ask(self, verb: str, request: Mapping[str, Any], *, secret: str = "") -> Any:
        """Return the answer. Raises the agent's error, or UnreachableError."""
        argv, data = self.argv(verb, request), f"{secret}\n".encode()
        try:
            async with asyncio.timeout(ANSWER_S):
                done = await self.connection.run(argv, data=data)
        except TimeoutError as error:
            raise UnreachableError(
                f"The agent on host {self.connection.host.name} does not answer.",
                f"It has not answered in {in_seconds(ANSWER_S, 0)}.",
                "See the host's load, then try again.",
            ) from error
        line = done.stdout.strip().rpartition("\n")[2]
        if done.exit_code not in (0, REFUSED):
            raise self.failed(done.exit_code, done.stderr)
        return self.read(line) if line else {}

    async def ask_for(self, kind: type[T], verb: str, request: Mapping[str, Any]) -> T:
        """`ask`, with the answer decoded. Raises UnreachableError for one of another kind."""
        answer = await self.ask(verb, request)
        try:
            return convert(answer, kind)
        except ValueError as error:
            raise self._not_understood(error) from error

    async def states(self) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the state of the host, then each change. Raises UnreachableError when it ends."""
        process = await self.connection.start(self.argv("status", {"follow": True}))
        assert process.stdout is not None
        try:
            while True:
                async with asyncio.timeout(SILENT_S):
                    line = await process.stdout.readline()
                if line.startswith(b"{"):
                    yield self.read(line)
                elif not line:
                    break
            raise await self._ended(process)
        except (TimeoutError, ValueError) as error:
            raise UnreachableError(
                f"The agent on host {self.connection.host.name} does not answer.",
                one_line(str(error)) or "It has sent nothing for 30 s.",
                "It connects again by itself; see the host's load.",
            ) from error
        finally:
            await end(process)

    async def _ended(self, process: Process) -> CockpitError:
        assert process.stderr is not None
        errors = (await self.connection.read_all(process.stderr)).decode(errors="replace")
        code = await process.wait()
        try:
            await self.connection.require_end(code)
        except UnreachableError as error:
            return error
        return self.failed(code, errors)

    def failed(self, code: int, errors: str) -> CockpitError:
        host = self.connection.host
        lines = [line for line in errors.splitlines() if line.strip()]
        why = one_line(lines[-1]) if lines else f"It ended with code {code}."
        if code in (CANNOT_RUN, NOT_FOUND):
            return CockpitError(
                f"Host {host.name} has no Python at {host.python}.",
                why,
                "Set python or venv of the host in the file to the interpreter that has Ray.",
            )
        return UnreachableError(f"The agent on host {host.name} failed.", why)

    def read(self, line: str | bytes) -> dict[str, Any]:
        """An answer. Raises the agent's error."""
        try:
            answer = loads(line)
            if isinstance(answer, dict):
                if error := answer.get("error"):
                    raise refusal(error)
                return answer
        except (ValueError, KeyError, TypeError) as error:
            raise self._not_understood(error) from error
        raise UnreachableError(f"The answer of host {self.connection.host.name} is no object.")

    def _not_understood(self, error: Exception) -> UnreachableError:
        name = self.connection.host.name
        return UnreachableError(
            f"The answer of host {name} is not understood.", one_line(str(error))
        )
