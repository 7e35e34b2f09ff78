"""Parts of a page: those that a program writes, between two comments, and the commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path


def between(page: str, name: str) -> str:
    """The part of the page between the comments of that name."""
    found = re.search(rf"<!-- {name} -->\n(.*?)\n<!-- end of {name} -->", page, re.DOTALL)
    assert found is not None, name
    return found[1]


def rewrite(file: Path, parts: Mapping[str, str]) -> None:
    """Put each part between the comments of its name."""
    page = file.read_text(encoding="utf-8")
    for name, part in parts.items():
        begin, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
        page = page.replace(f"{begin}{between(page, name)}{end}", f"{begin}{part}{end}")
    file.write_text(page, encoding="utf-8")


_SHELL = re.compile(r"(<!-- Needs .*?-->\n)? *```sh\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def section(page: str, title: str) -> str:
    """The text under a heading, up to the next one."""
    found = re.search(rf"^#+ {title}\n(.*?)(?=^#+ |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def unmarked_commands(text: str) -> list[list[str]]:
    """The arguments of each command, except for those with a comment that begins with `Needs`."""
    blocks = _SHELL.findall(text)
    lines = (line for mark, block in blocks if not mark for line in block.splitlines())
    return [words for line in lines if (words := shlex.split(line, comments=True))]
