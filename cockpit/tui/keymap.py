"""The keys that the configuration moves: the table `[keys]`, from names of keys to keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from textual.binding import BindingsMap
from textual.keys import _character_to_key

from cockpit.launch.closest_name import did_you_mean
from cockpit.model.error import UsageError
from cockpit.model.text import one_line
from cockpit.tui import keys

RESERVED = frozenset(
    (
        *("enter", "escape", "up", "down", "left", "right", "home", "end", "pageup", "pagedown"),
        *("j", "k", "g", "G", "ctrl+c", "ctrl+p", "ctrl+q", "ctrl+b", "ctrl+f", "ctrl+z"),
    )
)
"""Keys of tables, prompts and the terminal, which are the same everywhere."""
_NAME = re.compile(
    r"[!-~]|((ctrl|alt|shift)\+)*([a-z0-9]|f\d{1,2}|space|tab|backspace|delete|insert)"
)


def parse(table: Mapping[str, Any]) -> dict[str, str]:
    """The keys by the id of their binding. Raises UsageError for what cannot be bound, with why."""
    default = {binding.id or "": binding.key for binding in keys.bindings()}
    found = {}
    for name, value in table.items():
        if name not in default:
            raise _wrong(f"There is no key {one_line(name)!r}{did_you_mean(name, default)}")
        given = [key.strip() for key in value.split(",")] if isinstance(value, str) else [""]
        for key in given:
            if not _NAME.fullmatch(key):
                raise _wrong(f'{name} is a key such as "x", "f5" or "ctrl+x".')
            if key in RESERVED:
                raise _wrong(f"{name} cannot be {key}: it moves in tables, or closes what is open.")
        found[name] = ",".join(given)
    for name, key in _bound(found):
        for other, theirs in _bound({**default, **found}):
            if key == theirs and name != other and (shared := _views(name) & _views(other)):
                where = "all views" if len(shared) == len(keys.VIEWS) else ", ".join(sorted(shared))
                raise _wrong(f"{name} and {other} are both {found[name]}, in {where}.")
    return found


def use(keymap: Mapping[str, str]) -> None:
    """Move these keys, before the UI opens."""
    keys.KEYMAP.clear()
    keys.KEYMAP.update(keymap)
    keys.NUMBERS.update(
        {view: keymap[name] for view in keys.VIEWS if (name := f"view_{view}") in keymap}
    )


def rebind(bindings: BindingsMap) -> None:
    """Put the moved keys in place of the others.

    Textual's own keymap removes a key also from the other actions that use it in other views.
    """
    before = bindings.key_to_bindings
    found = {
        key: [one for one in many if one.id not in keys.KEYMAP] for key, many in before.items()
    }
    default = {one.id: one for many in before.values() for one in many}
    for name, text in keys.KEYMAP.items():
        for key in _names(text):
            found.setdefault(key, []).append(default[name].with_key(key))
    bindings.key_to_bindings = {key: many for key, many in found.items() if many}


def _bound(keymap: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(name, key) for name, text in keymap.items() for key in _names(text)]


def _names(text: str) -> list[str]:
    """Textual's names of keys: `plus` for `+`."""
    return [_character_to_key(key) if len(key) == 1 else key for key in text.split(",")]


def _views(name: str) -> set[str]:
    """Where the key works."""
    return set(keys.BY_ID[name].views if name in keys.BY_ID else keys.VIEWS)


def _wrong(why: str) -> UsageError:
    return UsageError(
        "[keys] is not understood.", why, "cockpit keys lists them; cockpit config edit opens it."
    )
