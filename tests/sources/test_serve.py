"""Ray Serve's deployments from the dashboard: listed when they change, absent without Serve."""

from __future__ import annotations

import copy
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from cockpit.model.event import Event, ServeListed, SourceHealth
from cockpit.sources.ray.dashboard import Dashboard
from cockpit.sources.ray.serve import ABSENT_S, NONE, ServeSource
from tests.sources.fake_dashboard import FakeDashboard, Fault

PATH = "/api/serve/applications/"
NOTHING: dict[str, Any] = {"controller_info": {}, "proxies": {}, "applications": {}}


def app() -> dict[str, Any]:
    """One application, as far as it is read."""
    replica = {"replica_id": "a1", "state": "RUNNING", "node_ip": "10.0.0.2", "pid": 41}
    deployment = {
        "name": "Digits",
        "status": "HEALTHY",
        "message": "",
        "target_num_replicas": 2,
        "deployment_config": {"autoscaling_config": {"min_replicas": 1, "max_replicas": 4}},
        "replicas": [
            replica | {"start_time_s": 1e9, "log_file_path": "/serve/replica_Digits_a1.log"},
            replica | {"replica_id": "b2", "state": "STARTING"},
        ],
    }
    found = {
        "name": "digits",
        "route_prefix": "/",
        "status": "RUNNING",
        "message": "",
        "last_deployed_time_s": 1e9,
        "deployments": {"Digits": deployment, "Cache": deployment | {"name": "Cache"}},
        "deployment_topology": {"ingress_deployment": "Digits"},
    }
    return NOTHING | {"applications": {"digits": found}}


async def polled(*answers: Fault) -> list[Event]:
    """The events of one poll for each answer."""
    fake, waits, found = FakeDashboard(), list[float](), list[Event]()
    fake.fail(PATH, *answers)

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async with fake.serve(), Dashboard(fake.route) as dashboard:
        source = ServeSource(dashboard, clock=lambda: 5.0, sleep=sleep)
        async with aclosing(source.events()) as events:
            async for event in events:
                found.append(event)
                health = [one for one in found if isinstance(one, SourceHealth)]
                if len(health) == len(answers):
                    return found
    raise AssertionError("the source has ended")


def answer(value: object) -> Fault:
    return Fault(200, json.dumps(value))


async def test_deployments_are_listed_only_when_they_change() -> None:
    changed = copy.deepcopy(app())
    changed["applications"]["digits"]["deployments"]["Digits"]["status"] = "UPDATING"
    found = await polled(*map(answer, (app(), app(), changed, NOTHING)))
    first, second, last = [one for one in found if isinstance(one, ServeListed)]
    assert [one.key for one in first.deployments] == ["digits/Cache", "digits/Digits"]
    cache, digits = first.deployments
    assert (digits.route, cache.route) == ("/", "")
    assert (digits.running, digits.target, digits.bounds) == (1, 2, (1, 4))
    assert digits.replicas[0].log == "serve/replica_Digits_a1.log"
    assert second.deployments[1].status == "UPDATING"
    assert last.deployments == ()


@pytest.mark.parametrize(
    "nothing",
    [answer(NOTHING), Fault(404, "Not Found"), Fault(501, "Serve dependencies are not installed.")],
)
async def test_source_is_absent_without_serve(nothing: Fault) -> None:
    [health] = await polled(nothing)
    assert isinstance(health, SourceHealth)
    assert (health.ok, health.absent, health.error) == (True, True, NONE)
    assert health.retry_at_s == 5.0 + ABSENT_S


async def test_controller_that_does_not_answer_is_a_failure() -> None:
    [health] = await polled(Fault(503, "Failed to get a response from the controller."))
    assert isinstance(health, SourceHealth)
    assert not health.ok
    assert "controller" in health.error


async def test_text_of_an_application_is_cleaned_and_a_wrong_answer_reported() -> None:
    hostile = copy.deepcopy(app())
    deployment = hostile["applications"]["digits"]["deployments"]["Digits"]
    deployment["message"] = "\x1b]0;x\x07failed\nAWS_SECRET_ACCESS_KEY=abcd1234abcd"
    wrong = copy.deepcopy(app())
    wrong["applications"]["digits"]["deployments"]["Digits"]["target_num_replicas"] = 10**12
    listed, _, health = await polled(answer(hostile), answer(wrong))
    assert isinstance(listed, ServeListed)
    message = listed.deployments[1].message
    assert message.startswith("failed AWS_SECRET_ACCESS_KEY=")
    assert "abcd" not in message
    assert isinstance(health, SourceHealth)
    assert not health.ok


async def test_answer_of_a_real_ray_serve_is_read() -> None:
    """Recorded from Ray 2.60.0: a healthy application, one that raises, one without room."""
    recorded = (Path(__file__).parent / "recorded" / "serve.json").read_text()
    listed, health = await polled(Fault(200, recorded))
    assert isinstance(listed, ServeListed)
    assert isinstance(health, SourceHealth)
    assert health.ok
    found = {one.key: one for one in listed.deployments}
    statuses = [one.status for one in found.values()]
    assert statuses == ["DEPLOY_FAILED", "HEALTHY", "HEALTHY", "UPDATING"]
    broken, digits, large = (
        found[f"{name}"] for name in ("broken/Broken", "digits/Digits", "large/Large")
    )
    assert broken.message.startswith("The deployment failed to start 3 times in a row.")
    assert broken.message.endswith("RuntimeError: no checkpoint at /models/digits")
    assert [one.state for one in broken.replicas] == ["STOPPED"] * 3
    assert broken.replicas[0].log == "serve/replica_broken_Broken_seotvazu.log"
    assert (digits.route, digits.app_status, digits.bounds) == ("/digits", "RUNNING", (1, 4))
    assert (digits.running, digits.target) == (1, 1)
    assert (large.running, large.target, large.replicas[0].state) == (0, 1, "STARTING")
    assert '{"CPU": 64}' in large.message
