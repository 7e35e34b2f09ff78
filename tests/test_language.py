"""The text of the project is plain technical English: no phrase of BANNED is in it.

Checked are the pages, the help of every verb, every string of the programs (labels, messages,
errors), and the docstrings and comments of the programs and the tests.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from cockpit.cli.verbs import VERBS
from cockpit.tui.commands.commands import COMMANDS
from cockpit.tui.keys import KEYS, TITLES
from tests.test_docs import PAGES, parser

ROOT = Path(__file__).parents[1]

BANNED = {
    r"without a word": "with no output",
    r"tells?|telling|told": "report, describe, show, print",
    r"says?|saying|said": "report, state, show, print",
    r"hears?|heard|speaks?|spoken": "receive, the last update",
    r"silent|silently|silence": "stale, no data, no output",
    r"(?:first|last) words?|words?|wording|worded|voice": "message, text, value, last update",
    r"mend(?:s|ed|ing)?": "fix, repair, undo",
    r"anew|once more": "again, new",
    r"lets? (?:one |it )?go|gone|goes away|going away": "delete, removed, ended",
    r"(?:a|one) look|looks? (?:whether|if)|looked (?:at|for|into)": "a snapshot, check, watch",
    r"whom|whoever|whatever|somebody|nobody|anybody": "target, user, any",
    r"meanwhile|(?:in|by) turns?|in the midst": "at the same time, alternating, during",
    r"gist|sieve|chronicle|story": "summary, filter, log",
    r"go(?:es|ing)? on|went on|gone on": "continue, resume",
    r"stands? (?:for|there|in|on|beside|below|apart|still)": "is, represents, is shown",
    r"can(?:not)? be had|to be had": "available",
    r"tak(?:es?|en|ing) away": "remove, delete",
    r"holds? up": "delay, block",
    r"so many|so often|in vain|out of all reason|for ever": "a number, forever",
    r"but for|all else|what else|of late": "except for, everything else",
    r"that which|of which|by which|who(?:se)? is": "split the sentence",
    r"hand(?:s|ed)? over|handed": "pass, give",
    r"(?:its|their|K8s|Kubernetes|lost|(?:un)?cordon(?:s|ed|ing)?(?: the| a)?) machines?": "node",
}
"""By a pattern that matches whole terms, without regard to case: what to write instead."""

TITLES_OF_WORKS = frozenset({"An Image is Worth 16x16 Words"})
"""Titles of publications, which docstrings quote."""

_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"^    .*$", re.MULTILINE)
_GENERATED = re.compile(r"^<!-- (\w+) -->$.*?^<!-- end of \1 -->$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`[^`]*`")
_LINK = re.compile(r"\]\([^)]*\)")
_PATTERN = re.compile("|".join(rf"(?P<p{n}>\b(?:{p})\b)" for n, p in enumerate(BANNED)), re.I)


def banned(text: str) -> list[str]:
    """Return each banned phrase with its surroundings and what to write instead."""
    flat = " ".join(text.split())
    instead = list(BANNED.values())
    return [
        f"…{flat[max(0, found.start() - 30) : found.end() + 30]}… (write: "
        f"{instead[int(str(found.lastgroup)[1:])]})"
        for found in _PATTERN.finditer(flat)
    ]


def prose(page: Path) -> str:
    """Return the page without what it quotes: output, code, links, and generated tables."""
    text = page.read_text(encoding="utf-8")
    for quoted in (_GENERATED, _FENCE, _INDENTED, _SPAN):
        text = quoted.sub(" ", text)
    return _LINK.sub("]", text)


def texts() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page, of each verb's help, and of the screen's labels."""
    for page in PAGES:
        yield str(page.relative_to(ROOT)), prose(page)
    for verb in VERBS:
        yield f"cockpit {verb.name} --help", f"{verb.summary}\n{parser(verb.name).format_help()}"
    yield "keys", "\n".join(f"{key.label}\n{key.help}" for key in KEYS)
    yield "views", "\n".join(TITLES.values())
    yield "commands", "\n".join(command.help for command in COMMANDS)


def strings(package: Path) -> str:
    """Return every string of the package's modules, one a line, without the docstrings."""
    found = []
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        found += [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            # A string without a space is a name or a key, and not a sentence.
            if id(node) not in docstrings and " " in node.value.strip()
        ]
    return "\n".join(found)


PACKAGES = {
    str(path.relative_to(ROOT)): path
    for part in ("cockpit", "training")
    for path in sorted((ROOT / part).iterdir())
    if path.is_dir() and (path / "__init__.py").exists()
}


def explanations(package: Path) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each docstring and comment, without code in backticks."""
    for path in sorted(package.rglob("*.py")):
        source, place = path.read_text(encoding="utf-8"), path.relative_to(ROOT)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                yield f"{place}:{node.lineno}", _SPAN.sub(" ", str(node.value.value))
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield f"{place}:{token.start[0]}", _SPAN.sub(" ", token.string)


@pytest.mark.parametrize(("name", "text"), [pytest.param(*item, id=item[0]) for item in texts()])
def test_text_for_users_has_no_banned_phrase(name: str, text: str) -> None:
    assert not (found := banned(text)), "\n".join(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_strings_of_package_have_no_banned_phrase(package: str) -> None:
    assert not (found := banned(strings(PACKAGES[package]))), "\n".join(found)


@pytest.mark.parametrize("part", ["cockpit", "training", "tests"])
def test_docstrings_and_comments_have_no_banned_phrase(part: str) -> None:
    found = [
        f"{place}: {phrase}"
        for place, text in explanations(ROOT / part)
        for phrase in banned(text)
        if not any(title in " ".join(text.split()) for title in TITLES_OF_WORKS)
    ]
    assert not found, "\n".join(found)


def test_banned_phrase_is_found_across_lines_and_in_any_case() -> None:
    assert banned("It waits without a\nword.") == [
        "…It waits without a word.… (write: with no output)"
    ]
    assert len(banned("Whom it hits is told")) == 2
    assert not banned("A password for the keyword")
