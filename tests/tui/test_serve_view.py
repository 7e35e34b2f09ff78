"""The view of Ray Serve: deployments, replicas, requests and latency, and when it is there."""

from __future__ import annotations

from cockpit.model.event import ServeListed, ServeMeasured, SourceHealth
from cockpit.model.serve import Deployment, Replica, ServeLoad
from tests.tui.conftest import Open, Seen
from tests.tui.simulated import START_S

FOUND = (
    Deployment(
        "digits", "Digits", "HEALTHY", "", "/", "RUNNING", START_S - 600, 2, (1, 4),
        (
            Replica("a1b2", "RUNNING", "10.0.0.2", 41, START_S - 600, "serve/replica_a1b2.log"),
            Replica("c3d4", "STARTING", "10.0.0.3", 42, START_S - 5),
        ),
    ),
    Deployment("digits", "Cache", "UNHEALTHY", "Replica crashed: \x1b[31mOOM", target=1),
)  # fmt: skip


def listed(seen: Seen, *, found: tuple[Deployment, ...] = FOUND) -> None:
    store = seen.app.store
    store.apply(SourceHealth(at_s=START_S, source="serve", ok=True, absent=not found))
    store.apply(ServeListed(at_s=START_S, source="serve", deployments=found))
    seen.app.tick()


async def test_view_has_a_tab_only_while_serve_runs(cockpit: Open) -> None:
    async with cockpit(size=(200, 50)) as seen:
        assert "i Serve" not in seen.text
        listed(seen)
        await seen.sees("i Serve")
        listed(seen, found=())
        await seen.until(lambda: "i Serve" not in seen.text)
        await seen.press("i")
        await seen.sees("No Serve application. Run: cockpit launch serve")


async def test_replicas_of_the_selected_deployment_are_below(cockpit: Open) -> None:
    for size in ((80, 24), (200, 50)):
        async with cockpit(size=size) as seen:
            listed(seen)
            await seen.press("i")
            await seen.sees(
                "Prometheus · 2", "Digits", "HEALTHY", "1/2", "Replicas of digits/Digits · 2"
            )
            await seen.sees("a1b2", "STARTING", "Serve · no request rate and latency")
            await seen.press("j")
            await seen.sees("Replicas of digits/Cache · 0")
            if size[0] > 100:
                await seen.sees("Replica crashed: OOM", "1-4")
            await seen.press("y")
            await seen.sees("deployment digits/Cache", "status: UNHEALTHY", "copy: c text")


async def test_requests_and_latency_are_those_of_prometheus(cockpit: Open) -> None:
    async with cockpit(size=(120, 30)) as seen:
        listed(seen)
        load = ServeLoad("digits", "Digits", 12.5, 0.0, 0.004, 0.093)
        seen.app.store.apply(ServeMeasured(at_s=START_S, source="prometheus", loads=(load,)))
        await seen.press("i")
        await seen.sees("12.5", "4 ms", "93 ms")
        assert "without Prometheus" not in seen.text
