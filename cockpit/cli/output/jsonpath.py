"""JSONPath templates as `kubectl get -o jsonpath=TEMPLATE` has them, without filters.

Syntax: https://kubernetes.io/docs/reference/kubectl/jsonpath/. `{.a.b[0]}`, `{.items[*].name}`,
`{['a']}`, `{range .items[*]}…{end}` and `{"\\n"}`. A key that is missing prints nothing, as in
kubectl.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from cockpit.model.error import UsageError
from cockpit.model.text import one_line

_PART = re.compile(
    r"""(?P<text>[^{]+)|\{(?P<code>(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^}"'])*)\}"""
)
_STEP = re.compile(
    r"""\.(?P<key>(?:\\.|[^\s.\[\](){}*?'",\\])+)|\[(?P<index>-?\d+)\]|(?P<all>\[\*\]|\.\*)"""
    r"""|\[(?P<quote>['"])(?P<quoted>(?:(?!(?P=quote)).)*)(?P=quote)\]"""
)
_ALL = object()
Step = str | int | object


class Path(Struct, frozen=True):
    """Keys, indexes and `_ALL`, from the root or from the current item of a range."""

    steps: tuple[Step, ...]
    from_root: bool = False

    def values(self, item: object, root: object) -> list[object]:
        found = [root if self.from_root else item]
        for step in self.steps:
            found = [value for each in found for value in _taken(each, step)]
        return found


class Range(Struct, frozen=True):
    path: Path
    parts: tuple[Part, ...]


Part = str | Path | Range


def parsed(template: str) -> tuple[Part, ...]:
    """The parts of a template. UsageError describes what is wrong, and where."""
    tokens, at = [], 0
    while at < len(template):
        match = _PART.match(template, at)
        if match is None:
            raise _wrong(template, f"The brace at {one_line(template[at:], 20)!r} is not closed")
        tokens.append((match["text"], (match["code"] or "").strip()))
        at = match.end()
    if not any(text is None for text, _ in tokens):
        raise _wrong(template, "It has no expression in braces")
    rest = iter(tokens)
    return tuple(_parts(template, rest, in_range=False))


def rendered(parts: tuple[Part, ...], value: object) -> str:
    """The text of the template for a JSON-ready value."""
    return "".join(_texts(parts, value, value))


def _parts(
    template: str, tokens: Iterator[tuple[str | None, str]], *, in_range: bool
) -> Iterator[Part]:
    for text, code in tokens:
        if text is not None:
            yield text
        elif code == "end" and in_range:
            return
        elif code.startswith(("'", '"')):
            yield _literal(template, code)
        elif code.startswith("range "):
            path = _path(template, code.removeprefix("range ").strip())
            yield Range(path, tuple(_parts(template, tokens, in_range=True)))
        else:
            yield _path(template, code)
    if in_range:
        raise _wrong(template, "A {range …} has no {end}")


def _literal(template: str, code: str) -> str:
    quoted = code if code[0] == '"' else f'"{code[1:-1]}"'
    try:
        return str(json.loads(quoted))
    except ValueError as error:
        raise _wrong(template, f"{one_line(code, 20)} is not a valid quoted string") from error


def _path(template: str, code: str) -> Path:
    steps: list[Step] = []
    at = 1 if code.startswith(("$", "@")) else 0
    while at < len(code):
        match = _STEP.match(code, at)
        if match is None:
            if re.match(r"\[\?|\.\.", code[at:]):
                why = "Filters ([?…]) and .. are not supported: use -o json and jq"
            else:
                why = f"It cannot be read at {one_line(code[at:], 20)!r}"
            raise _wrong(template, why)
        if match["all"]:
            steps.append(_ALL)
        elif match["index"]:
            steps.append(int(match["index"]))
        else:
            steps.append(match["quoted"] or re.sub(r"\\(.)", r"\1", match["key"] or ""))
        at = match.end()
    if not code:
        raise _wrong(template, "An expression is empty")
    return Path(tuple(steps), code.startswith("$"))


def _taken(value: object, step: Step) -> list[Any]:
    match value:
        case Mapping():
            if step is _ALL:
                return list(value.values())
            return [value[step]] if isinstance(step, str) and step in value else []
        case list():
            if step is _ALL:
                return value
            if isinstance(step, int) and -len(value) <= step < len(value):
                return [value[step]]
    return []


def _texts(parts: tuple[Part, ...], item: object, root: object) -> Iterator[str]:
    for part in parts:
        match part:
            case str():
                yield part
            case Path():
                yield " ".join(map(_text, part.values(item, root)))
            case Range():
                for each in part.path.values(item, root):
                    yield from _texts(part.parts, each, root)


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _wrong(template: str, why: str) -> UsageError:
    return UsageError(
        f"The template {one_line(template, 60)!r} is not valid.",
        f"{why}.",
        "For example: -o jsonpath='{.items[*].name}'",
    )
