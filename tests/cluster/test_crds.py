"""KubeRay's kinds as we write them agree with the real ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.cluster.crds import ours, real

_SAME = ("type", "format", "minimum", "maximum", "default", "required", "enum")


def test_both_kinds_are_served_with_a_status_of_their_own() -> None:
    versions = {each["metadata"]["name"]: each["spec"]["versions"] for each in ours()}
    assert set(versions) == {"rayclusters.ray.io", "rayjobs.ray.io"}
    for [version] in versions.values():
        assert version["name"] == "v1"
        assert version["served"]
        assert version["subresources"] == {"status": {}}


def test_ours_define_nothing_that_the_real_ones_do_not() -> None:
    theirs = {each["metadata"]["name"]: each for each in real()}
    for mine in ours():
        name = mine["metadata"]["name"]
        assert name in theirs
        differences = list(_differences(_schema(mine), _schema(theirs[name]), name))
        assert differences == []
        assert _columns(mine).items() <= _columns(theirs[name]).items()


def _differences(mine: dict[str, Any], theirs: dict[str, Any], path: str) -> Iterator[str]:
    for key in _SAME:
        if mine.get(key) != theirs.get(key):
            yield f"{path}: {key} is {mine.get(key)}, there {theirs.get(key)}"
    known = theirs.get("properties", {})
    for name, below in mine.get("properties", {}).items():
        if name in known:
            yield from _differences(below, known[name], f"{path}.{name}")
        else:
            yield f"{path}.{name} is not there"
    if "items" in mine:
        yield from _differences(mine["items"], theirs["items"], f"{path}[]")


def _version(definition: dict[str, Any]) -> dict[str, Any]:
    [version] = [each for each in definition["spec"]["versions"] if each["name"] == "v1"]
    found: dict[str, Any] = version
    return found


def _schema(definition: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = _version(definition)["schema"]["openAPIV3Schema"]
    return schema


def _columns(definition: dict[str, Any]) -> dict[str, str]:
    return {
        column["name"]: column["jsonPath"]
        for column in _version(definition)["additionalPrinterColumns"]
    }
