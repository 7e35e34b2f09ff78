"""The tables of docs/drills.md as the code has them; run as a module, it writes them there."""

from __future__ import annotations

from pathlib import Path

from cockpit.drills.faults import catalog
from cockpit.drills.faults.fault import Fault, Value
from cockpit.drills.gamedays.file import game_day, shipped
from cockpit.drills.probes.hypothesis import KINDS
from tests.page import rewrite

PAGE = Path(__file__).parents[2] / "docs/drills.md"
BACKENDS = ("kuberay", "local", "address")


def tables() -> dict[str, str]:
    """By the name that stands in the page's comments around each."""
    return {"faults": faults(), "probes": probes(), "days": days()}


def faults() -> str:
    lines = [
        "| fault | what it does | parameters | needs | ends | where |",
        "|---|---|---|---|---|---|",
    ]
    for fault in catalog.faults():
        kind = fault
        parameters = ", ".join(f"`{p.name}` {_value(p.default)}" for p in kind.parameters)
        ends = "by itself" if kind.ends_by_itself and not kind.undo else kind.undo
        cells = (
            f"`{kind.name}`", kind.summary, parameters, ", ".join(kind.needs), ends, _where(fault),
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def probes() -> str:
    lines = ["| probe | holds when | asked | example |", "|---|---|---|---|"]
    for kind in KINDS.values():
        when = ", ".join(kind.when)
        lines.append(f"| `{kind.name}` | {kind.about} | {when} | `{kind.example}` |")
    return "\n".join(lines)


def days() -> str:
    lines = ["| game day | about |", "|---|---|"]
    return "\n".join([*lines, *(f"| `{name}` | {game_day(name).about} |" for name in shipped())])


def _where(fault: Fault) -> str:
    return ", ".join(backend for backend in BACKENDS if not fault.obstacle(backend))


def _value(value: Value) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else f"{value}" or '""'


if __name__ == "__main__":
    rewrite(PAGE, tables())
