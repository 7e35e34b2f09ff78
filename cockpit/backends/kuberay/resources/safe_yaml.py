"""An object as YAML that may be shown: no control characters, no secrets, nothing endless."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cockpit.model.decoding import limited_yaml
from cockpit.model.secret import masked, masked_command
from cockpit.model.text import clean

LONGEST = 4_000
"""Characters of one text that are shown; an annotation may hold 256 KiB."""
LONGEST_ANNOTATION = 400
DEEPEST = 40
MASKED = "*** (not shown)"
_SECRET_NAME = re.compile(
    r"token|passw|secret|credential|api_?key|access_?key|private_?key|auth(?!or)", re.IGNORECASE
)
_COMMANDS = ("entrypoint", "command", "args")
"""Fields of command lines, as one text or as a list."""
_DROPPED = ("kubectl.kubernetes.io/last-applied-configuration",)
"""A second copy of the complete object, including its secrets."""


def as_yaml(raw: Any) -> str:
    return limited_yaml.dumps(shown(raw))


def shown(raw: Any) -> Any:
    """A copy without what only the API server needs, and safe to print."""
    if not isinstance(raw, Mapping):
        return _safe(raw)
    made = dict(raw)
    if isinstance(made.get("metadata"), Mapping):
        meta = {key: value for key, value in made["metadata"].items() if key != "managedFields"}
        if isinstance(meta.get("annotations"), Mapping):
            meta["annotations"] = {
                key: _cut(value, LONGEST_ANNOTATION)
                for key, value in meta["annotations"].items()
                if key not in _DROPPED
            }
        made["metadata"] = meta
    if made.get("kind") == "Secret":
        for part in ("data", "stringData"):
            if isinstance(made.get(part), Mapping):
                made[part] = dict.fromkeys(made[part], MASKED)
    return _safe(made)


def _safe(value: Any, key: str = "", depth: int = 0) -> Any:
    if depth > DEEPEST:
        return "…"
    if isinstance(value, Mapping):
        name = value.get("name")
        # An entry of `env`: its value is secret depending on its name.
        hidden = isinstance(name, str) and "value" in value and _SECRET_NAME.search(name)
        return {
            _text(str(k)): MASKED
            if (hidden and k == "value" and v) or _is_secret(str(k), v)
            else _safe(v, str(k), depth + 1)
            for k, v in value.items()
        }
    if key in _COMMANDS and isinstance(value, list) and all(isinstance(x, str) for x in value):
        return [_text(_cut(text, LONGEST)) for text in masked_command(value)]
    if isinstance(value, list):
        return [_safe(item, key, depth + 1) for item in value]
    return _text(_cut(value, LONGEST)) if isinstance(value, str) else value


def _is_secret(key: str, value: Any) -> bool:
    """A plain text under a name such as `redis-password`; `secretName` only names a Secret."""
    return (
        isinstance(value, str)
        and bool(value)
        and bool(_SECRET_NAME.search(key))
        and not key.endswith(("Name", "name", "Path", "Mode", "mode", "Policy"))
        and not key.startswith("automount")
    )


def _text(value: str) -> str:
    """Without control characters and secrets. The rest of a value of several lines goes too."""
    shown: list[str] = []
    hidden_at: int | None = None
    for line in map(clean, value.split("\n")):
        indent = len(line) - len(line.lstrip())
        if hidden_at is not None and indent > hidden_at:
            continue
        without = _env_line(line)
        hidden_at = None if without == line else indent
        shown.append(masked(without))
    return "\n".join(shown)


def _env_line(line: str) -> str:
    """A line of a runtime environment (`TOKEN: abc`) or of a script (`export TOKEN=abc`)."""
    match = re.match(r"^(\s*(?:export )?[\"']?([\w-]+)[\"']?\s*[:=]\s*)(\S.*)$", line)
    if match and _SECRET_NAME.search(match[2]) and not match[3].startswith(("$", "{")):
        return match[1] + MASKED
    return line


def _cut(value: Any, limit: int) -> Any:
    if not isinstance(value, str) or len(value) <= limit:
        return value
    return f"{value[:limit]}… ({len(value) - limit:,} more characters)"
