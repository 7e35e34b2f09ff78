"""The Lease of a drill on a real API server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cockpit.backends.kuberay.api.client import KubeClient
from cockpit.backends.kuberay.backend import KubeRayBackend
from cockpit.model.error import LeaseHeldError
from tests.backends.kuberay.by_hand import Place

PATH = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/demo-drill"


def renewed(place: Place, seconds_ago: float) -> None:
    """As a holder writes it whose clock differs."""
    at = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    spec = {"renewTime": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
    place.merge(PATH.format(place.namespace), {"spec": spec})


async def refused(backend: KubeRayBackend, expired: str = "") -> LeaseHeldError:
    with pytest.raises(LeaseHeldError, match="Another drill runs") as caught:
        await backend.hold("ana", 60.0, expired=expired)
    return caught.value


async def test_lease_is_taken_renewed_and_released(place: Place) -> None:
    place.ready_cluster()
    async with place.backend() as backend:
        await backend.hold("bob", 60.0)
        first = await refused(backend)
        assert (first.current, first.ttl_s) == (True, 60.0)
        assert "bob" in first.why
        await backend.hold("bob", 60.0)
        assert (await refused(backend)).renewal != first.renewal, "a renewal can be observed"
        await backend.release("ana")
        assert await backend.holder() == "bob"
        await backend.release("bob")
        await backend.hold("ana", 60.0)
        assert await backend.holder() == "ana"


async def test_lease_is_released_though_a_late_renewal_comes_in_between(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.ready_cluster()
    async with place.backend() as backend:
        await backend.hold("bob", 60.0)
        get = KubeClient.get
        late = [True]

        async def with_renewal(client: KubeClient, path: str, params: Any = None) -> Any:
            found = await get(client, path, params)
            if path == PATH.format(place.namespace) and late:
                late.clear()
                renewed(place, 0.0)
            return found

        monkeypatch.setattr(KubeClient, "get", with_renewal)
        await backend.release("bob")
        assert not late
        assert await backend.holder() == ""


@pytest.mark.parametrize("seconds_ago", [61, 3600, -3600])
async def test_lease_is_not_taken_by_the_time_that_is_written_in_it(
    place: Place, seconds_ago: float
) -> None:
    place.ready_cluster()
    async with place.backend() as backend:
        await backend.hold("bob", 60.0)
        renewed(place, seconds_ago)
        seen = await refused(backend)
        assert not seen.current
        await backend.hold("bob", 60.0)
        assert (await refused(backend, expired=seen.renewal)).current, "bob has renewed it"


async def test_lease_that_was_observed_for_its_duration_is_taken(place: Place) -> None:
    place.ready_cluster()
    async with place.backend() as backend:
        await backend.hold("bob", 60.0)
        renewed(place, 61)
        seen = await refused(backend)
        await backend.hold("ana", 60.0, expired=seen.renewal)
        assert await backend.holder() == "ana"
        spec = place.ask("GET", PATH.format(place.namespace))["spec"]
        assert spec["leaseTransitions"] == 1


async def test_renewal_that_was_carried_out_late_is_ours(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.ready_cluster()
    async with place.backend() as backend:
        await backend.hold("bob", 60.0)
        patch = backend.client.patch

        async def patch_twice(path: str, body: Any, **more: Any) -> Any:
            await patch(path, body, **more)  # that of before, whose answer did not arrive
            return await patch(path, body, **more)

        monkeypatch.setattr(backend.client, "patch", patch_twice)
        await backend.hold("bob", 60.0)
        assert await backend.holder() == "bob"


async def test_lease_that_another_takes_at_the_same_time_is_not_ours(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.ready_cluster()
    async with place.backend() as backend:
        await backend.hold("bob", 60.0)
        patch = backend.client.patch

        async def patch_second(path: str, body: Any, **more: Any) -> Any:
            place.merge(path, {"spec": {"holderIdentity": "eve"}})
            return await patch(path, body, **more)

        monkeypatch.setattr(backend.client, "patch", patch_second)
        with pytest.raises(LeaseHeldError, match="Another drill runs"):
            await backend.hold("bob", 60.0)
