"""The permissions of a user, queried from a real API server, with each permission missing once."""

from __future__ import annotations

import pytest

from cockpit.backends.kuberay.api.access import INSTEAD, NEEDS, Right
from cockpit.backends.protocol import VERBS
from tests.backends.kuberay.by_hand import Place

RIGHTS = sorted({right for needs in NEEDS.values() for right in needs}, key=str)


def rules(rights: list[Right]) -> list[dict[str, list[str]]]:
    return [
        {"apiGroups": [right.group], "resources": [right.resource], "verbs": [right.verb]}
        for right in rights
    ]


def test_every_verb_reports_what_it_needs() -> None:
    assert set(NEEDS) == set(VERBS)


@pytest.mark.parametrize("missing", RIGHTS, ids=str)
async def test_a_right_that_is_missing_refuses_just_the_verbs_that_need_it(
    place: Place, missing: Right
) -> None:
    granted = [right for right in RIGHTS if right != missing]
    kubeconfig = place.user("cockpit-lacking", rules(granted), everywhere=True)
    async with place.backend(kubeconfig=kubeconfig) as backend:
        able = await backend.capabilities()
    refused = {verb: able[verb].why_not for verb in able if not able[verb].allowed}
    assert set(refused) == {verb for verb, needs in NEEDS.items() if missing in needs}
    assert all(f"you may not {missing}" in why for why in refused.values())
    assert all(f"cockpit-lacking-{place.namespace}" in why for why in refused.values())


async def test_a_port_forward_does_for_the_proxy_when_it_may_be_opened(place: Place) -> None:
    others = list(INSTEAD["launch"])
    kubeconfig = place.user("cockpit-forwards", rules(others))
    half = place.user("cockpit-half", rules(others[:1]))
    async with place.backend(kubeconfig=kubeconfig) as backend:
        assert (await backend.capabilities())["launch"].allowed
    async with place.backend(kubeconfig=half) as backend:
        assert not (await backend.capabilities())["launch"].allowed
