"""The audit log: one JSON line for each requested change of a cluster, including failed ones.

`require_writable` before a change, `record` after it: a change that was made is reported as made,
even if its line cannot be written.
"""

from __future__ import annotations

import errno
import getpass
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cockpit.config import paths
from cockpit.model.cluster import ClusterRef
from cockpit.model.error import CockpitError, NotAllowedError
from cockpit.model.secret import masked
from cockpit.model.text import one_line

DONE, FAILED, UNKNOWN = "done", "failed", "unknown"
READ_BYTES = 1_000_000
"""Of the end of the log."""
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)

log = logging.getLogger(__name__)


def path() -> Path:
    return paths.state_dir() / "audit.jsonl"


def require_writable() -> None:
    """Create and open the log. Raises CockpitError where no line could be appended to it."""
    try:
        os.close(_opened())
    except OSError as error:
        kind = NotAllowedError if error.errno in _FORBIDDEN else CockpitError
        raise kind(
            f"The audit log {path()} cannot be opened, so nothing was changed.",
            f"{error.strerror or error}.",
            "Make its directory writable, or set XDG_STATE_HOME to another one.",
        ) from error


def record(
    action: str,
    ref: ClusterRef,
    target: str,
    *,
    kind: str = "Cluster",
    before: str = "",
    after: str = "",
    error: str = "",
    is_known: bool = True,
) -> str:
    """Append the user, the change, the time, the cluster and the result to the audit log.

    `error`: why the change failed; with `is_known` false, it may have been made all the same, or in
    part. Returns why the line could not be written, or an empty string.
    Values that look like a secret are masked, since a launch has its command line here. The file
    has mode 0600. A line that cannot be written is also logged as a warning: the change was already
    made or has failed.
    """
    line = {
        "at_s": round(time.time(), 3),
        "user": os.environ.get("SUDO_USER") or _user(),
        "cluster": str(ref),
        "context": ref.context,
        "namespace": ref.namespace,
        "kind": kind,
        "action": action,
        "target": masked(target),
        "before": masked(before),
        "after": masked(after),
        "result": DONE if not error else FAILED if is_known else UNKNOWN,
        "error": masked(error),
    }
    try:
        with os.fdopen(_opened(), "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    except (OSError, CockpitError) as failed:
        why = failed.strerror if isinstance(failed, OSError) else str(failed)
        missing = (
            f"The audit log {path()} could not be written ({why}): {action} of {line['target']}, "
            f"{line['result']}, is not in it."
        )
        log.warning("%s", missing)
        return missing
    return ""


@contextmanager
def recorded(
    action: str, ref: ClusterRef, target: str, *, before: str = "", after: str = ""
) -> Iterator[dict[str, str]]:
    """Open the log before the change that is made inside, and append its line, also if it fails.

    Yields `before` and `after`, for what is known only after the change. Raises as
    `require_writable`.
    """
    require_writable()
    line = {"before": before, "after": after}
    try:
        yield line
    except BaseException as error:
        why = one_line(str(error)) or "interrupted"
        record(action, ref, target, before=line["before"], after=line["after"], error=why)
        raise
    record(action, ref, target, before=line["before"], after=line["after"])


def done_within(prefix: str, ref: ClusterRef, within_s: float) -> tuple[float, ...]:
    """How many seconds ago such actions were done on the cluster, or may have been.

    From the newest part of the log. Its times are those of this host's clock, which the cluster's
    may differ from.
    """
    try:
        with path().open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - READ_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ()
    found, now_s = [], time.time()
    for line in text.splitlines():
        try:
            read = json.loads(line)
            at_s, action = float(read["at_s"]), str(read["action"])
            may_be_done = read["result"] != FAILED and read["cluster"] == str(ref)
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if may_be_done and now_s - at_s <= within_s and action.startswith(prefix):
            found.append(now_s - at_s)
    return tuple(found)


def _opened() -> int:
    where = path()
    paths.make_private(where.parent)
    return os.open(where, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())  # a container's user need not be in the list of users
