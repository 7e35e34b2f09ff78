"""What a launch uploads: the lines of its plan."""

from __future__ import annotations

from collections.abc import Sequence

from cockpit.format import bytes_text
from cockpit.launch.folder import Folder, Why
from cockpit.model.text import one_line

ASK_ABOVE_BYTES = 10_000_000
"""A larger folder is confirmed first: it is more than code."""
NAMED = 3
"""So many names of each kind that is left out are in the plan; --dry-run lists all."""


def summary(chosen: Folder, config_map: str = "") -> list[str]:
    """How many files and bytes are uploaded, where to, and what is left out.

    `config_map` names the object that the package becomes; "": it goes to the Ray cluster.
    """
    count = f"{len(chosen.files)} file{'' if len(chosen.files) == 1 else 's'}"
    where = f" into the ConfigMap {config_map}" if config_map else ""
    lines = [
        f"Upload {count} ({bytes_text(chosen.size_bytes)}) of {one_line(str(chosen.directory))}"
        f"{where}; --dry-run lists them."
    ]
    if is_large(chosen):
        lines.append(f"That is more than {ASK_ABOVE_BYTES // 10**6} MB: .rayignore excludes data.")
    for why in Why:
        names = [one_line(item.name) for item in chosen.left_out if item.why is why]
        if names:
            more = ", …" if len(names) > NAMED else ""
            named = ", ".join(names[:NAMED])
            lines.append(f"Left out ({why}): {len(names)}: {named}{more}")
    return lines


def listing(chosen: Folder) -> Sequence[str]:
    """Every file with its size, then everything that is left out with the reason."""
    width = max((len(bytes_text(file.size_bytes)) for file in chosen.files), default=0)
    files = [
        f"  {bytes_text(file.size_bytes):>{width}}  {one_line(file.name, 1000)}"
        for file in chosen.files
    ]
    return [
        *files,
        *(f"  not uploaded ({item.why}): {one_line(item.name, 1000)}" for item in chosen.left_out),
    ]


def is_large(chosen: Folder) -> bool:
    """Whether it is confirmed before it is uploaded."""
    return chosen.size_bytes > ASK_ABOVE_BYTES
