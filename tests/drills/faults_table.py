"""The tables of docs/drills.md as the code has them; run as a module, it writes them there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from cockpit.drills.faults import catalog
from cockpit.drills.faults.fault import Fault
from cockpit.drills.gamedays.file import game_day, shipped
from cockpit.drills.probes.hypothesis import KINDS
from cockpit.tui.views.drills.catalog_rows import default_text
from tests.page import rewrite

PAGE = Path(__file__).parents[2] / "docs/drills.md"
BACKENDS = {"kuberay": "KubeRay", "local": "local", "ssh": "ssh", "address": "address"}
_CODE = re.compile(
    r"(?<![`-])\b(for_s|deadline_s|kubectl \w+|throttle|pod-kill|rank-kill)\b(?![`-])"
    r"|(?<=\()(hog|ranks|head|all)(?=\))"
)


def tables() -> dict[str, str]:
    """By the name in the page's comments around each."""
    return {"faults": faults(), "parameters": parameters(), "probes": probes(), "days": days()}


def faults() -> str:
    lines = [
        "| fault | effect | requirements | end of the fault | backends |",
        "|---|---|---|---|---|",
    ]
    for fault in catalog.faults():
        needs = "; ".join(fault.needs)
        cells = (f"`{fault.name}`", fault.summary, needs, fault.ending, _where(fault))
        lines.append(_row(cells))
    return "\n".join(lines)


def parameters() -> str:
    """One row for each parameter, default and meaning, with its faults."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for fault in catalog.faults():
        for one in fault.parameters:
            row = (f"`{one.name}`", f"`{default_text(one)}`", one.about)
            rows.setdefault(row, []).append(f"`{fault.name}`")
    lines = ["| parameter | default | meaning | faults |", "|---|---|---|---|"]
    for row, names in sorted(rows.items(), key=lambda item: item[0][0]):
        lines.append(_row((*row, ", ".join(names))))
    return "\n".join(lines)


def probes() -> str:
    lines = ["| probe | condition | example |", "|---|---|---|"]
    for kind in KINDS.values():
        lines.append(f"| `{kind.name}` | {kind.about} | `{kind.example}` |")
    return "\n".join(lines)


def days() -> str:
    lines = ["| game day | effect |", "|---|---|"]
    return "\n".join([*lines, *(f"| `{name}` | {game_day(name).about} |" for name in shipped())])


def _where(fault: Fault) -> str:
    return ", ".join(shown for name, shown in BACKENDS.items() if not fault.obstacle(name))


def _row(cells: Iterable[str]) -> str:
    return _CODE.sub(r"`\g<0>`", f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    rewrite(PAGE, tables())
