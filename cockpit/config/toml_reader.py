"""Read a TOML file, with the line and column in each error.

`tomllib` gives the position of syntax errors only. The position of a key or value is searched in
the text, with comments and strings blanked out.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cockpit.launch.closest_name import did_you_mean
from cockpit.model.error import UsageError
from cockpit.model.text import one_line

Path = tuple[str | int, ...]
"""The way to a value: `("step", 2, "set", "epochs")`; items of lists of tables count from 0."""

_OPAQUE = re.compile(
    r'"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*', re.DOTALL
)
_WHERE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


_MANY_DOTS = re.compile(r"(?:\.[^.\n=,]*){32}")
"""A key of this many parts: `tomllib` takes 39 s for 20,000 of them (Python 3.11)."""
MAX_CHARACTERS = 1 << 20
MAX_NUMBER = 1e12
"""Of seconds, steps and the like."""


class Reader:
    """`name` is what the file is called in errors; `tables` is all that it holds."""

    def __init__(self, name: str, text: str) -> None:
        """Raises UsageError for what is no TOML."""
        self.name, self._text = name, text
        if len(text) > MAX_CHARACTERS:
            raise UsageError(f"{name}: it has more than {MAX_CHARACTERS:,} characters.")
        # Return a text of the same length, so that positions match; quoted keys are kept.
        self._plain = _OPAQUE.sub(lambda found: _blank(found[0], text, found.end()), text)
        if dotted := _MANY_DOTS.search(self._plain):
            line, column = self._lines(dotted.start())
            raise UsageError(f"{name}:{line}:{column}: the key has too many parts.")
        try:
            self.tables: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise self._not_toml(error) from error
        except RecursionError as error:
            raise UsageError(f"{name}: its values are nested too deeply.") from error
        except ValueError as error:  # a number of thousands of digits
            raise UsageError(f"{name}: it is not valid TOML: {one_line(str(error))}") from error

    def wrong(self, path: Path, what: str, why: str = "", todo: str = "") -> UsageError:
        """The error, with the place of the path, or of as much of it as there is."""
        line, column = self._place(path)
        return UsageError(f"{self.name}:{line}:{column}: {what}", why, todo)

    def line(self, path: Path) -> int:
        """The line of the path, or of as much of it as there is."""
        return self._place(path)[0]

    def known(self, table: Mapping[str, Any], path: Path, keys: Iterable[str], of: str) -> None:
        """Raises UsageError for a key that `of` has not."""
        allowed = tuple(keys)
        for key in table:
            if key not in allowed:
                near = did_you_mean(key, allowed)
                raise self.wrong(
                    (*path, key),
                    f"{of} has no {one_line(key, 40)!r}{near or '.'}",
                    f"It has: {', '.join(allowed)}.",
                )

    def text(self, table: Mapping[str, Any], path: Path, key: str, default: str = "") -> str:
        value = table.get(key, default)
        if not isinstance(value, str):
            raise self.wrong(
                (*path, key), f"{key} is {_shown(value)}.", 'It must be a string: "…".'
            )
        return value

    def number(
        self, table: Mapping[str, Any], path: Path, key: str, default: float | None = None
    ) -> float | None:
        """A number of 0 or more."""
        value = table.get(key, default)
        if value is None:
            return None
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        if not fits or not 0 <= value <= MAX_NUMBER:
            raise self.wrong(
                (*path, key), f"{key} is {_shown(value)}.", "It must be a number from 0 to 1e12."
            )
        return float(value)

    def whole(
        self, table: Mapping[str, Any], path: Path, key: str, default: int | None = None
    ) -> int | None:
        value = table.get(key, default)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
            raise self.wrong(
                (*path, key), f"{key} is {_shown(value)}.", "It must be a whole number, 0 or more."
            )
        return value

    def truth(self, table: Mapping[str, Any], path: Path, key: str) -> bool:
        value = table.get(key, False)
        if not isinstance(value, bool):
            raise self.wrong(
                (*path, key), f"{key} is {_shown(value)}.", "It must be true or false."
            )
        return value

    def texts(self, table: Mapping[str, Any], path: Path, key: str) -> tuple[str, ...]:
        """A list of texts; a text is a list of one."""
        value = table.get(key, [])
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
            raise self.wrong(
                (*path, key),
                f"{key} is {_shown(value)}.",
                'It must be a list of strings: ["…", "…"].',
            )
        return tuple(found)

    def tables_of(
        self, table: Mapping[str, Any], path: Path, key: str
    ) -> Sequence[Mapping[str, Any]]:
        value = table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.wrong(
                (*path, key),
                f"{key} is {_shown(value)}.",
                f"It must be a list of tables: [[{key}]].",
            )
        return value

    def settings(self, table: Mapping[str, Any], path: Path, key: str) -> dict[str, str]:
        """A table of plain values, as the texts that a command line would have."""
        value = table.get(key, {})
        if not isinstance(value, dict):
            raise self.wrong(
                (*path, key),
                f"{key} is {_shown(value)}.",
                f"It must be a table: {key} = {{ a = 1 }}.",
            )
        for name, one in value.items():
            if not isinstance(one, bool | int | float | str):
                raise self.wrong(
                    (*path, key, name),
                    f"{name} is {_shown(one)}.",
                    "It must be a number, a string, true or false.",
                )
        return {name: _plain(one) for name, one in value.items()}

    def _not_toml(self, error: tomllib.TOMLDecodeError) -> UsageError:
        text = str(error)
        found = _WHERE.search(text)
        line, column = (found[1], found[2]) if found and found[1] else self._lines(len(self._text))
        what = text[: found.start()] if found else text
        return UsageError(f"{self.name}:{line}:{column}: it is not valid TOML: {what}.")

    def _place(self, path: Path) -> tuple[int, int]:
        begin, end = 0, len(self._text)
        found = begin
        headers = [""]
        for part, after in zip(path, (*path, "")[1:], strict=True):
            if isinstance(part, int):
                continue
            headers.append(part)
            header = re.escape(".".join(filter(None, headers)))
            opened = [
                match
                for match in re.finditer(rf"^[ \t]*\[+{header}\]+", self._plain, re.MULTILINE)
                if begin <= match.start() < end
            ]
            number = after if isinstance(after, int) else 0
            if number < len(opened):
                found, begin = opened[number].start(), opened[number].end()
                same = [m.start() for m in opened[number + 1 :]]
                end = min(same[0] if same else end, self._next_header(begin, header, end))
                continue
            # In a header, such as [part.other], from its bracket: there the next search begins.
            start = r"(?:^[ \t]*\[+|(?<![\w.-]))"
            key = re.compile(rf"{start}[\"']?{re.escape(part)}[\"']?(?=\s*[=.])", re.MULTILINE)
            match = key.search(self._plain, begin, end)
            if match is None:
                break
            found = begin = match.start()
            if isinstance(after, int):
                found = begin = self._item(begin, end, after)
        return self._lines(found)

    def _item(self, begin: int, end: int, number: int) -> int:
        """Return the position of that table in an inline list: `key = [{ … }, { … }]`."""
        depth = 0
        for at in range(begin, end):
            if self._plain[at] == "{":
                if depth == 0 and number == 0:
                    return at
                number -= depth == 0
                depth += 1
            elif self._plain[at] == "}":
                depth -= 1
        return begin

    def _next_header(self, begin: int, header: str, end: int) -> int:
        """The offset of the next table that is not inside this one."""
        for match in re.finditer(r"^[ \t]*\[+([^\]\n]*)\]+", self._plain[begin:end], re.MULTILINE):
            if not re.match(rf"{header}\.", match[1].strip()):
                return begin + match.start()
        return end

    def _lines(self, at: int) -> tuple[int, int]:
        before = self._text[:at]
        return before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1


def _blank(found: str, text: str, end: int) -> str:
    if found[0] in "\"'" and re.match(r"\s*=", text[end:]):
        return found  # a quoted key
    return re.sub(r"[^\n]", " ", found)


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    return one_line(repr(value) if isinstance(value, str) else _plain(value), 60)


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
