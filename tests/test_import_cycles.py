"""No module imports itself through others, at run time or for types only."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

NOT_SPLIT = frozenset(
    {("training.telemetry.worker.worker", "training.telemetry")},
)
"""Allowed import cycles: (importer, imported).

`training.telemetry` is the interface of a training loop, and holds its worker.
"""


def import_graph(package: str) -> dict[str, set[str]]:
    """Return what each module of the package imports of it, also under TYPE_CHECKING."""
    modules = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    graph = {}
    for module, path in modules.items():
        imported = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                assert node.level == 0, f"{module} has a relative import"
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                imported |= {name if name in modules else node.module for name in names}
        graph[module] = {
            name
            for name in imported & modules.keys()
            if name != module and (module, name) not in NOT_SPLIT
        }
    return graph


@pytest.mark.parametrize("package", ["cockpit", "training"])
def test_modules_import_each_other_in_one_direction(package: str) -> None:
    try:
        TopologicalSorter(import_graph(package)).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))
