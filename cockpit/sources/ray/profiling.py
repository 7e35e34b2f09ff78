"""Inspect a process with Ray's tools: stacks, CPU and memory profiles, traces of a job's tasks.

Ray runs py-spy, or memray, on the node of the process (ray/dashboard/modules/reporter, 2.60). It
refuses unless RAY_DASHBOARD_ENABLE_PROFILING=1 is set on the head. py-spy is installed with
`ray[default]`, as a dependency; memray is not. Every call may raise the errors of
`cockpit.model.error`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from cockpit.format import in_seconds
from cockpit.model.error import CockpitError, NotAllowedError, UsageError
from cockpit.model.text import clean, one_line
from cockpit.sources.ray.flamegraph import Profile, profile
from cockpit.sources.ray.http import AnswerError, DashboardClient

STACK_TIMEOUT_S = 30.0
SLACK_S = 30.0
"""Extra time of a profile beyond its duration: py-spy starts, and draws."""
MEMORY_SLACK_S = 90.0
TIMELINE_TIMEOUT_S = 120.0
_NODE_ID_DIGITS = 56
_NO_PROCESS = ("no such process", "os error 3)", "check that the process is running")
"""py-spy's message for a process that has ended."""
_SWITCH = "RAY_DASHBOARD_ENABLE_PROFILING"


class Process(Struct, frozen=True):
    """A process on a node of the cluster."""

    pid: int
    node_ip: str
    node_id: str = ""
    """Ray's, in hexadecimal; what it finds the node by where it is known."""

    @property
    def params(self) -> dict[str, str]:
        where = self.node_id.lower()
        if len(where) == _NODE_ID_DIGITS and all(c in "0123456789abcdef" for c in where):
            return {"pid": str(self.pid), "node_id": where}
        return {"pid": str(self.pid), "ip": self.node_ip}

    def __str__(self) -> str:
        return f"process {self.pid} on {self.node_ip or self.node_id[:8]}"


class RayTools(DashboardClient):
    """The tools of the nodes behind one Ray dashboard."""

    async def stack(self, process: Process, *, native: bool = False) -> str:
        """Return the stacks of all threads, as py-spy prints them, without control sequences.

        The process is paused for some milliseconds; with `native`, C and C++ frames are included.
        """
        params = process.params | {"native": "1" if native else "0"}
        answer = await self._ask("/worker/traceback", params, process, "py-spy", STACK_TIMEOUT_S)
        text = answer.decode(errors="replace")
        return "\n".join(clean(line) for line in text.splitlines())

    async def cpu_profile(
        self, process: Process, seconds: int = 5, *, idle: bool = False, native: bool = False
    ) -> Profile:
        """Sample the process for `seconds` (integer, 1 to 60 by Ray's default).

        With `idle`, waiting threads count too: for a hung rank.
        """
        if seconds < 1:
            raise UsageError(
                f"A profile of {in_seconds(seconds)} is too short.", todo="Set 1 s or more."
            )
        params = process.params | {
            "duration": str(seconds),
            "format": "flamegraph",
            "idle": "1" if idle else "0",
            "native": "1" if native else "0",
        }
        timeout_s = seconds + SLACK_S
        svg = await self._ask("/worker/cpu_profile", params, process, "py-spy", timeout_s)
        return profile(svg, float(seconds))

    async def memory_profile(self, process: Process, seconds: int = 5) -> bytes:
        """Trace the process's allocations for `seconds`. Return memray's flame graph as HTML."""
        params = process.params | {"duration": str(seconds), "format": "flamegraph"}
        timeout_s = seconds + MEMORY_SLACK_S
        return await self._ask("/memory_profile", params, process, "memray", timeout_s)

    async def timeline(self, job_id: str = "") -> list[dict[str, Any]]:
        """The tasks of a job (Ray's hexadecimal id; empty: of all) as events of a Chrome trace.

        Ray keeps the newest tasks alone, and gives at most 10,000 of them.
        """
        params = {"job_id": job_id} if job_id else {}
        raw = await self._http.ask(
            "GET", "/api/v0/tasks/timeline", params=params, timeout_s=TIMELINE_TIMEOUT_S
        )
        if not isinstance(raw, list):
            raise AnswerError(
                "Ray's timeline of tasks is not understood.",
                f"it is a {type(raw).__name__}, not a list of events",
                "cockpit knows Ray 2.60's answers; check the cluster's version",
                status=200,
            )
        return [event for event in raw if isinstance(event, dict)]

    async def _ask(
        self, path: str, params: Mapping[str, str], process: Process, tool: str, timeout_s: float
    ) -> bytes:
        try:
            return await self._http.fetch("GET", path, params=params, timeout_s=timeout_s)
        except NotAllowedError as error:
            if _SWITCH in error.why:
                raise NotAllowedError(
                    "This cluster does not allow stacks and profiles of its processes.",
                    "They are disabled on its head, which is Ray's default.",
                    f"Set {_SWITCH}=1 in the environment of the head, and start it again.",
                ) from error
            raise
        except AnswerError as error:
            raise _explained(error, process, tool) from error


def _explained(error: AnswerError, process: Process, tool: str) -> CockpitError:
    """The message of a node's tool, in a sentence: Ray returns the tool's complete output."""
    text = error.body.casefold()
    what = f"{process} could not be inspected.".capitalize()
    if "is not installed" in text:
        return CockpitError(
            what,
            f"{tool} is not installed on its node, or not in the PATH of Ray there.",
            f"Put {tool} into the image or the environment of the nodes: pip install {tool}",
        )
    if "permission" in text or "operation not permitted" in text:
        return NotAllowedError(
            what,
            f"{tool} may not attach to it: the node does not allow ptrace.",
            "In Kubernetes give the container the capability SYS_PTRACE; elsewhere let Ray run as "
            f"root, or make {tool} setuid root.",
        )
    if any(message in text for message in _NO_PROCESS):
        return CockpitError(
            what,
            "There is no such process any more.",
            "The rank may have been restarted: see its page, or cockpit ranks.",
        )
    if "failed to get agent address" in text or "no agent address found" in text:
        return CockpitError(what, "Ray has no living agent on its node.", "See: cockpit nodes")
    if error.status == 400:
        return UsageError(what, one_line(error.body))
    return CockpitError(what, _first_error(error.body) or error.why)


def _first_error(body: str) -> str:
    """The first line of what the tool wrote as its error."""
    after = body.partition("=== stderr ===")[2] or body
    lines = [line for line in after.partition("=== stdout ===")[0].splitlines() if line.strip()]
    return one_line(lines[0]) if lines else ""
