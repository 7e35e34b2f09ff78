"""The part of YAML that kubectl and the cloud CLIs write kubeconfigs in, without PyYAML.

The import of PyYAML takes 9 to 13 ms, a twelfth of `cockpit status`. This module reads mappings and
lists in block style whose scalars are on one line and cannot be numbers or dates. It leaves
everything else to PyYAML, and has the same values (tests/model/test_limited_yaml.py).
"""

from __future__ import annotations

from typing import Any

MAX_CHARACTERS = 64 << 10
MAX_INDENT = 64
MAX_KEY_CHARACTERS = 100

_IN_KEY = str.maketrans("-./", "___")
_OTHER = frozenset(("yes", "no", "on", "off", "true", "false", "null"))
"""In any case: not the strings that they look like."""
_VALUES = {"true": True, "false": False, "null": None, '""': "", "''": ""}


class _OtherYaml(Exception):
    pass


def loads(text: str) -> dict[str, Any] | None:
    """The decoded document; None for all but a mapping in the style above."""
    if len(text) > MAX_CHARACTERS or not text.isascii():
        return None
    lines = []
    for line in text.split("\n"):
        content = line.strip(" ")
        if content and not content.startswith("#"):
            indent = len(line) - len(line.lstrip(" "))
            if not content.isprintable() or indent > MAX_INDENT:
                return None
            lines.append((indent, content))
    lines.reverse()
    try:
        return _mapping(lines) if lines and not lines[-1][0] else None
    except _OtherYaml:
        return None


def _mapping(lines: list[tuple[int, str]]) -> dict[str, Any]:
    """Consume its lines, which are in reverse order."""
    indent = lines[-1][0]
    found: dict[str, Any] = {}
    while lines and lines[-1][0] == indent and not _is_item(lines[-1][1]):
        key, value = _entry(lines.pop()[1]) or ("", "")
        if not key or key.lower() in _OTHER:
            raise _OtherYaml
        if value:
            found[key] = _scalar(value)
        elif lines and lines[-1][0] >= indent and _is_item(lines[-1][1]):
            found[key] = _list(lines)
        elif lines and lines[-1][0] > indent:
            found[key] = _mapping(lines)
        else:
            found[key] = None
    _end(lines, indent)
    return found


def _list(lines: list[tuple[int, str]]) -> list[Any]:
    indent = lines[-1][0]
    found: list[Any] = []
    while lines and lines[-1][0] == indent and _is_item(lines[-1][1]):
        line = lines.pop()[1]
        content = line[2:].lstrip(" ")
        if _entry(content):
            lines.append((indent + len(line) - len(content), content))
            found.append(_mapping(lines))
        else:
            found.append(_scalar(content))
    return found


def _entry(content: str) -> tuple[str, str] | None:
    """A key and its value on the same line, or an empty one."""
    key, colon, value = content.partition(":")
    if not colon or (value and value[0] != " ") or len(key) > MAX_KEY_CHARACTERS:
        return None
    named = key[:1].isalpha() and key.translate(_IN_KEY).isidentifier()
    return (key, value.lstrip(" ")) if named else None


def _is_item(content: str) -> bool:
    return content.startswith("- ")


def _end(lines: list[tuple[int, str]], indent: int) -> None:
    """Raise if the line after a block is within it, or follows the document."""
    if lines and (lines[-1][0] > indent or not indent):
        raise _OtherYaml


def _scalar(text: str) -> Any:
    if text in _VALUES:
        return _VALUES[text]
    if text == "{}":
        return {}
    if text == "[]":
        return []
    if text[0] == text[-1] and text[0] in "\"'" and len(text) > 1:
        inner = text[1:-1]
        if "\\" in inner or text[0] in inner:
            raise _OtherYaml
        return inner
    start = text[2:3] if text.startswith("--") else text[0]
    if (
        not (start.isalpha() or text[0] == "/")
        or text.lower() in _OTHER
        or ": " in text
        or " #" in text
        or text.endswith(":")
    ):
        raise _OtherYaml
    return text
