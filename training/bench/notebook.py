"""A notebook (nbformat 4.5) that reads the adjacent results with only Python."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

READ = '''\
import json
from pathlib import Path

run = json.loads(Path("results.json").read_text())
assert run["schema"] == 1, f"results of schema {run['schema']}, and this notebook reads 1"
print(run["machine"], run["began_at"], "quick" if run["quick"] else "")


class Rows:
    """Rows of a result as a table; a spread as its median (quartiles)."""

    def __init__(self, rows):
        self.rows = rows
        self.columns = list(rows[0]) if rows else []

    def __str__(self):
        return "\\n".join(" | ".join(map(shown, row.values())) for row in [*self.head, *self.rows])

    @property
    def head(self):
        return [dict.fromkeys(self.columns) | {name: name for name in self.columns}]

    def _repr_markdown_(self):
        lines = [" | ".join(self.columns), " | ".join("---" for _ in self.columns)]
        lines += [" | ".join(map(shown, row.values())) for row in self.rows]
        return "\\n".join(f"| {line} |" for line in lines)


class Picture:
    def __init__(self, name):
        self.text = Path(name).read_text()

    def _repr_svg_(self):
        return self.text


def shown(value):
    if isinstance(value, dict) and set(value) == {"median", "low", "high", "n"}:
        return "{median:.4g} ({low:.4g}–{high:.4g})".format(**value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def tables(part):
    """Every list of rows of a part's result, by name."""
    found = {name: Rows(value) for name, value in part.items() if is_rows(value)}
    plain = {name: value for name, value in part.items() if not isinstance(value, (list, dict))}
    return found | ({"others": Rows([plain])} if plain else {})


def is_rows(value):
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)
'''

PART = """\
for name, rows in tables(run["parts"][{part!r}]).items():
    print(name, rows, sep="\\n", end="\\n\\n")
"""


def notebook(parts: Sequence[str], plots: Iterable[str]) -> str:
    """The notebook as text, for the measured parts and the file names of the plots."""
    cells = [
        _markdown("# Results of the benchmark\n\nRun in the folder of `results.json`."),
        _code(READ),
    ]
    for part in parts:
        cells += [_markdown(f"## {part}"), _code(PART.format(part=part))]
    cells += [_code(f"Picture({name!r})") for name in plots]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    python = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {
        "cells": cells,
        "metadata": {"kernelspec": python, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _markdown(text: str) -> dict[str, object]:
    return {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(keepends=True)}


def _code(text: str) -> dict[str, object]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": text.splitlines(keepends=True),
    }
