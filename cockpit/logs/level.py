"""How bad a line of a log is, and how much of its start only names its time and origin."""

from __future__ import annotations

import re

_BAD = re.compile(
    r"\b(?:ERROR|CRITICAL|FATAL|Traceback|Segmentation fault|core dumped|OOMKilled|out of memory)\b"
    r"|\b[A-Z]\w*(?:Error|Exception)\b"
)
# Each match holds one of these. To look for them first takes a fifth of the time of the patterns.
_IN_BAD = (
    *("Error", "ERROR", "Exception", "Traceback", "CRITICAL", "FATAL", "OOMKilled"),
    *("Segmentation fault", "core dumped", "out of memory"),
)
_IN_WARNING = ("WARN", "Warning")
_WARNING = re.compile(r"\b(?:WARNING|WARN|\w+Warning)\b")
# Ray marks each line of a worker with where it came from: `(RayTrainWorker pid=12, ip=10.0.0.3)`;
# a row of merged logs begins with its time and what wrote it (`cockpit.logs.merge.text_of`).
_ORIGIN = re.compile(
    r"^\([^()]*\bpid=\d+[^()]*\)|^(?:\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}|-{18})  \S.*?(?=  )"
)


def level(line: str) -> str:
    """`bad`, `warning` or nothing."""
    if _holds(line, _IN_BAD) and _BAD.search(line):
        return "bad"
    return "warning" if _holds(line, _IN_WARNING) and _WARNING.search(line) else ""


def _holds(line: str, parts: tuple[str, ...]) -> bool:
    for part in parts:  # noqa: SIM110 - any() of a generator takes three times as long
        if part in line:
            return True
    return False


def origin_cells(line: str) -> int:
    """How many characters at the start only name the origin of the line."""
    found = _ORIGIN.match(line)
    return found.end() if found else 0
