"""Parts of a page that are written by a program, each between two comments of its name."""

from __future__ import annotations

import re
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
