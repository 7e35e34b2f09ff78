"""Change the object that a plan has shown, and no other that has got its name since."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeVar

from cockpit.backends.kuberay.api.client import KubeError
from cockpit.backends.kuberay.api.fields import mapping, text
from cockpit.model.error import ReplacedError
from cockpit.model.text import one_line

T = TypeVar("T")


def require(kind: str, name: str, raw: Any, uid: str) -> None:
    """Raise ReplacedError unless `raw`, the current object, has the UID."""
    if text(mapping(raw, "metadata"), "uid") != uid:
        raise ReplacedError(kind, one_line(name))


def delete_options(uid: str, **more: Any) -> dict[str, Any]:
    """The body of a DELETE, or an eviction's `deleteOptions`, that holds for this UID alone."""
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
    return options | more


def is_of(uid: str) -> dict[str, Any]:
    """The operation of a JSON patch that makes all of it fail on an object of another UID."""
    return {"op": "test", "path": "/metadata/uid", "value": uid}


async def guarded(kind: str, name: str, request: Awaitable[T]) -> T:
    """Raises ReplacedError where the API server reports that a precondition's UID is another.

    `409: the UID in the precondition (…) does not match the UID in record (…)`
    (k8s.io/apiserver/pkg/storage, Preconditions.Check).
    """
    try:
        return await request
    except KubeError as error:
        if error.status == 409 and "uid in" in error.what.lower():
            raise ReplacedError(kind, one_line(name)) from error
        raise
