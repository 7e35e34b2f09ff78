"""Names of objects that go into a path of the API: only such as Kubernetes itself takes.

An empty one would make a path of all objects of its kind, and `..` one of another kind.
"""

from __future__ import annotations

import re

from cockpit.model.error import UsageError
from cockpit.model.text import one_line

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")


def is_label(name: str) -> bool:
    """Whether a Service or a namespace can have the name (a label of RFC 1123)."""
    return _LABEL.fullmatch(name) is not None


def checked(kind: str, name: str) -> str:
    """The name. UsageError for one that no object of that kind can have."""
    if _NAME.fullmatch(name) and ".." not in name:
        return name
    raise UsageError(
        f"There is no {kind} {one_line(name)!r}.",
        "Names have lower-case letters, digits, dashes and dots.",
    )
