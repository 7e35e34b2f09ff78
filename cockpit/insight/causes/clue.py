"""A clue: one line that shows how something ended, by the rule that matches it."""

from __future__ import annotations

import math
from collections.abc import Iterable

from msgspec import Struct

from cockpit.insight.causes.rules import Rule, match, plain
from cockpit.insight.causes.types import Category
from cockpit.model.text import one_line


class Clue(Struct, frozen=True):
    """One line that shows how something ended."""

    category: Category
    weight: int
    what: str
    quote: str
    quoted_from: str
    at_s: float | None = None
    ranks: tuple[int, ...] = ()
    pod: str = ""
    node: str = ""
    is_victim: bool = False
    subject: str = ""
    """The subject, if it is neither a rank nor a pod."""


def clue_of(
    text: str,
    quoted_from: str,
    at_s: float | None = None,
    *,
    ranks: tuple[int, ...] = (),
    pod: str = "",
    node: str = "",
    bonus: int = 0,
    subject: str = "",
) -> Clue | None:
    rule = match(text)
    if rule is None:
        return None
    return Clue(
        rule.category,
        rule.weight + _applied(rule, bonus),
        _what(rule, text),
        one_line(plain(text) or text, 300),
        quoted_from,
        at_s,
        ranks,
        pod,
        node,
        rule.is_victim,
        subject,
    )


def _applied(rule: Rule, bonus: int) -> int:
    if bonus < 0:
        return 0 if rule.is_thin else bonus
    return bonus if rule.is_of_script else 0


def _what(rule: Rule, text: str) -> str:
    """An exception without a specific rule is named."""
    if not rule.is_generic:
        return rule.what
    return f"raised {one_line(plain(text), 160)}".rstrip(".: ")


def earliest(clues: Iterable[Clue]) -> Clue | None:
    """The clue of highest weight, of several the first in time."""

    def order(clue: Clue) -> tuple[int, float]:
        return -clue.weight, clue.at_s if clue.at_s is not None else math.inf

    return min(clues, key=order, default=None)
