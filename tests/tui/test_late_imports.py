"""A UI that has run for a while imports nothing more: its memory does not grow by a late import."""

from __future__ import annotations

import ast
import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from cockpit.cli.screen import late_imports
from cockpit.tui.app import CockpitApp
from cockpit.tui.changes.actions import Connection
from tests.tui import headless
from tests.tui.conftest import Seen
from tests.tui.simulated_kubernetes import kube

ROOT = Path(__file__).parents[2]

ONLY_VERBS = ("cockpit.cli.",)
"""Packages whose functions the running UI does not call."""
ONLY_SOMETIMES = frozenset(
    {
        "cockpit.backends.local",  # of the other backend
        "httpx",  # of a local cluster: for a proxy, or for MLflow
        "kubernetes",  # for credentials of OIDC
        "urllib.request",  # where a variable may name a proxy
    }
)
"""Most clusters do without these, and they are large."""

KEYS = (
    *(["1"], ["2"], ["3"], ["4"], ["5"], ["6"], ["7"], ["8"], ["9"], ["0"]),
    *(["question_mark"], ["ctrl+p"], ["slash"], ["4", "j", "K"], ["plus"], ["4", "d"], ["C"]),
    *(["colon", *"drill pod-kill", "enter"], ["colon", *"launch", "enter"]),
    *(["colon", *"launch", "enter", "ctrl+g"], ["colon", *"stop", "enter"], ["T"], ["a"]),
    *(["colon", *"hang", "enter"], ["colon", *"describe", "enter"]),
)


IMPORTS = """
import json, sys
from functools import cache
from importlib import import_module
from cockpit.cli.screen import late_imports, screen

if sys.argv[1] == "kuberay":
    import cockpit.cli.screen.kubernetes
for name in ("cockpit.cli.screen.connection", *late_imports.names(sys.argv[1])):
    import_module(name)
print(json.dumps(sorted(sys.modules)))
"""


def printed(*argv: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, *argv], capture_output=True, text=True, cwd=ROOT, check=False, timeout=120
    )
    assert not done.returncode, done.stdout + done.stderr
    names: list[str] = json.loads(done.stdout.splitlines()[-1])
    return names


@cache
def imported_in_functions(module: str) -> frozenset[str]:
    """The modules that functions of the module import, without those for types only."""
    return frozenset(_imported_in_functions(module))


def _imported_in_functions(module: str) -> Iterator[str]:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    for function in ast.walk(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.module is not None
                yield node.module
                if node.module.partition(".")[0] != "cockpit":
                    continue
                for alias in node.names:
                    name = f"{node.module}.{alias.name}"
                    if (ROOT / Path(*name.split("."))).with_suffix(".py").exists():
                        yield name


@pytest.mark.parametrize("backend", ["kuberay", "local"])
def test_no_function_of_the_ui_imports_a_module_that_is_not_there(backend: str) -> None:
    there = frozenset(printed("-c", IMPORTS, backend))
    late = {
        f"{name} in {module}"
        for module in there
        if module.startswith("cockpit.") and not module.startswith(ONLY_VERBS)
        for name in imported_in_functions(module)
        if name not in there and name not in ONLY_SOMETIMES
        if name.partition(".")[0] not in ONLY_SOMETIMES
    }
    assert not late


def test_views_dialogs_and_plans_import_no_module() -> None:
    assert not printed("-m", "tests.tui.test_late_imports")


async def _modules_of_keys() -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        headless.patch(patch)
        simulation = kube()
        simulation.advance(60.0)
        app = CockpitApp(lambda _: Connection(simulation.session, simulation.actions))
        with simulation.session:
            async with app.run_test(size=(120, 40), notifications=True) as pilot:
                seen = Seen(app, pilot, simulation)
                await seen.until(lambda: bool(app.capabilities))
                before = set(sys.modules)
                for keys in KEYS:
                    await seen.press(*keys)
                    while len(app.screen_stack) > 1:
                        app.pop_screen()
                        await pilot.pause()
                return sorted(set(sys.modules) - before)


if __name__ == "__main__":
    for name in ("cockpit.cli.screen.kubernetes", *late_imports.names("kuberay")):
        import_module(name)
    print(json.dumps(asyncio.run(_modules_of_keys())))
