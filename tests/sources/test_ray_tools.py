"""Output and errors of Ray's tools, as text, numbers and sentences."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from cockpit.model.cluster import DashboardRoute
from cockpit.model.error import CockpitError, NotAllowedError, UnreachableError, UsageError
from cockpit.sources.ray.flamegraph import profile
from cockpit.sources.ray.http import AnswerError, MissingError
from cockpit.sources.ray.profiling import Process, RayTools

NODE = "0123456789abcdef" * 3 + "01234567"
RANK = Process(4242, "10.0.0.3", NODE)
SVG = b"""<svg>
<g><title>all (100 samples, 100%)</title><rect x="0%" y="52" height="15" fg:x="0" fg:w="100"/></g>
<g><title>&lt;module&gt; (train.py:7) (100 samples, 100.00%)</title>
</g><g><title>&lt;module&gt; (train.py:7) (100 samples, 100.00%)</title><rect x="0%" y="68" \
height="15" fg:x="0" fg:w="100"/></g>
<g><title>step (train.py:5) (60 samples, 60.00%)</title><rect y="84" fg:x="0" fg:w="60"/></g>
<g><title>load (data.py:9) (30 samples, 30.00%)</title><rect y="84" fg:x="60" fg:w="30"/></g>
<g><title>step (train.py:5) (10 samples, 10.00%)</title><rect y="100" fg:x="0" fg:w="10"/></g>
</svg>"""
"""As py-spy draws: callees are below their caller."""


def tools(answer: Callable[[httpx.Request], httpx.Response]) -> RayTools:
    route = DashboardRoute("http://head:8265", {})
    return RayTools(route, transport=httpx.MockTransport(answer))


def answering(status: int, text: str) -> RayTools:
    return tools(lambda request: httpx.Response(status, text=text))


async def test_a_stack_comes_without_control_sequences_and_asks_by_node_id() -> None:
    asked: list[httpx.URL] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url)
        return httpx.Response(200, text="Thread 1 (idle)\n    \x1b[31mwait\x1b[0m (t.py:3)\n")

    async with tools(answer) as client:
        text = await client.stack(RANK)
        await client.stack(Process(7, "10.0.0.4", "not hexadecimal"), native=True)
    assert text == "Thread 1 (idle)\n    wait (t.py:3)"
    assert asked[0].path == "/worker/traceback"
    assert dict(asked[0].params) == {"pid": "4242", "node_id": NODE, "native": "0"}
    assert dict(asked[1].params) == {"pid": "7", "ip": "10.0.0.4", "native": "1"}


def test_a_flame_graph_reports_where_time_was_spent_itself_and_in_what_was_called() -> None:
    found = profile(SVG, 1.0)
    assert found.samples == 100
    assert [(h.name, h.self_percent, h.total_percent) for h in found.hot] == [
        ("step (train.py:5)", 60.0, 60.0),
        ("load (data.py:9)", 30.0, 30.0),
        ("<module> (train.py:7)", 10.0, 100.0),
    ]
    assert sum(h.self_percent for h in found.hot) == 100.0


def test_a_picture_that_is_not_understood_is_kept_without_functions() -> None:
    found = profile(b"<svg>\xff no frames</svg>", 2.0)
    assert (found.samples, found.hot) == (0, ())
    assert found.svg.startswith(b"<svg>")


async def test_a_profile_asks_for_its_seconds() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/worker/cpu_profile"
        assert request.url.params["duration"] == "3"
        assert request.url.params["idle"] == "1"
        return httpx.Response(200, content=SVG)

    async with tools(answer) as client:
        found = await client.cpu_profile(RANK, 3, idle=True)
        assert (found.seconds, found.svg) == (3.0, SVG)
        with pytest.raises(UsageError):
            await client.cpu_profile(RANK, 0)


PY_SPY_FAILED = """Failed to execute `['py-spy', 'dump', '-p', '4242']`.

=== stderr ===
Error: {}

=== stdout ===

"""


@pytest.mark.parametrize(
    ("status", "text", "kind", "why", "todo"),
    [
        (
            403,
            "Profiling is disabled by default for security reasons. To enable profiling, set the "
            "environment variable RAY_DASHBOARD_ENABLE_PROFILING=1 on the Ray head node.",
            NotAllowedError,
            "disabled on its head",
            "RAY_DASHBOARD_ENABLE_PROFILING=1",
        ),
        (
            500,
            "Failed to execute: py-spy is not installed",
            CockpitError,
            "py-spy is not installed on its node",
            "pip install py-spy",
        ),
        (
            500,
            PY_SPY_FAILED.format("Permission Denied: Try running again with elevated permissions"),
            NotAllowedError,
            "does not allow ptrace",
            "SYS_PTRACE",
        ),
        (
            500,
            PY_SPY_FAILED.format(
                "Failed to get process executable name. Check that the process is running."
            ),
            CockpitError,
            "no such process any more",
            "cockpit ranks",
        ),
        (
            500,
            "Failed to get agent address for node at node_id 0123",
            CockpitError,
            "no living agent",
            "cockpit nodes",
        ),
        (
            400,
            "duration must be between 1 and 60 seconds, got: 90",
            UsageError,
            "between 1 and 60",
            "",
        ),
        (500, PY_SPY_FAILED.format("it broke"), CockpitError, "Error: it broke", ""),
    ],
)
async def test_failed_tool_is_an_error_with_a_todo(
    status: int, text: str, kind: type[CockpitError], why: str, todo: str
) -> None:
    async with answering(status, text) as client:
        with pytest.raises(kind) as caught:
            await client.cpu_profile(RANK)
    assert why in caught.value.why
    assert todo in caught.value.todo
    assert "Traceback" not in str(caught.value)


async def test_a_dead_dashboard_and_a_wrong_token_stay_what_they_are() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    async with tools(refuse) as client:
        with pytest.raises(UnreachableError):
            await client.stack(RANK)
    async with answering(401, "no token") as client:
        with pytest.raises(NotAllowedError, match="token"):
            await client.stack(RANK)


async def test_a_timeline_is_a_list_of_events() -> None:
    async with answering(200, '[{"ph": "X", "ts": 1}, "odd"]') as client:
        assert await client.timeline("02000000") == [{"ph": "X", "ts": 1}]
    async with answering(200, '{"result": false}') as client:
        with pytest.raises(AnswerError, match="not understood"):
            await client.timeline()
    async with answering(404, "no route") as client:
        with pytest.raises(MissingError):
            await client.timeline()
