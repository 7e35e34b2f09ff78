"""Write manifests/kubernetes/rendered: `python -m tests.manifests.render`."""

from __future__ import annotations

import subprocess

from tests.cluster.build import program
from tests.manifests.kustomize import FOLDER, OVERLAYS

RENDERED = FOLDER / "rendered"
HEAD = (
    "# Generated from ../overlays/{name} by `python -m tests.manifests.render`. Do not edit.\n"
    "# `cockpit up` creates these objects, since it needs no kustomize.\n"
)


def rendered(name: str) -> str:
    """The file of an overlay. Raises CalledProcessError if kustomize refuses it."""
    command = [str(program("kustomize")), "build", str(FOLDER / "overlays" / name)]
    built = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return HEAD.format(name=name) + built


def main() -> None:
    RENDERED.mkdir(exist_ok=True)
    for name in OVERLAYS:
        (RENDERED / f"{name}.yaml").write_text(rendered(name))


if __name__ == "__main__":
    main()
