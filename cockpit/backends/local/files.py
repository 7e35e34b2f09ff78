"""The files of a local cluster, all readable by its user only.

`$XDG_STATE_HOME/cockpit/local/NAME/` (0700) contains what cockpit reads:

    spec.json      what is wanted; written by `up`, then by the operator alone
    status.json    what is; written by the operator at each change
    events.jsonl   notices; `events.1.jsonl` is the older half
    token          Ray's authentication token
    operator.log   the operator's own complaints
    logs/POD.log   the output of the pod's `ray start`

`/tmp/cockpit-UID/CLUSTER_UID/` (0700) contains the files of Ray and the sockets, because a Unix
socket's path is at most 107 bytes and Ray adds 63 to its temporary directory: `operator.sock` and a
directory a pod, which is that pod's `--temp-dir` and working directory. Ray creates its directories
with 0777, so the parent keeps other users out.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from cockpit.config import paths
from cockpit.model.error import CockpitError, NotAllowedError


class ClusterFiles(Struct, frozen=True):
    """The paths of one cluster's state directory."""

    directory: Path

    @classmethod
    def of(cls, name: str) -> ClusterFiles:
        return cls(clusters_dir() / name)

    @property
    def spec(self) -> Path:
        return self.directory / "spec.json"

    @property
    def status(self) -> Path:
        return self.directory / "status.json"

    @property
    def events(self) -> Path:
        return self.directory / "events.jsonl"

    @property
    def older_events(self) -> Path:
        return self.directory / "events.1.jsonl"

    @property
    def token(self) -> Path:
        return self.directory / "token"

    @property
    def operator_log(self) -> Path:
        return self.directory / "operator.log"

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    def pod_log(self, pod: str) -> Path:
        return self.logs / f"{pod}.log"


class RunFiles(Struct, frozen=True):
    """The paths of one cluster's short directory under /tmp."""

    directory: Path

    @classmethod
    def of(cls, uid: str) -> RunFiles:
        return cls(_runs_dir() / uid)

    @property
    def socket(self) -> Path:
        return self.directory / "operator.sock"

    def pod(self, pod: str) -> Path:
        """Named after the random end of the pod's name alone, to stay short."""
        return self.directory / pod.rpartition("-")[2]


def clusters_dir() -> Path:
    return paths.state_dir() / "local"


def make_private(directory: Path) -> None:
    """Make the directory and what is above it, 0700. Raises FileExistsError when it is there."""
    _make_in(directory, paths.make_private)


def make_run_dir(run: RunFiles) -> None:
    """Make it, after checking that /tmp/cockpit-UID is ours alone.

    On a shared machine anyone may have made that name first, to read or swap what is put there.
    """
    _make_in(run.directory, _make_own)


def _make_in(directory: Path, make_parent: Callable[[Path], None]) -> None:
    """A `down` of the last cluster removes the parent, maybe just now: then it is made again."""
    for last_try in (False, False, True):
        try:
            make_parent(directory.parent)
            directory.mkdir(mode=0o700)
        except FileNotFoundError:
            if last_try:
                raise
        else:
            return


def _make_own(parent: Path) -> None:
    parent.mkdir(mode=0o700, exist_ok=True)
    found = parent.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise NotAllowedError(
            f"{parent} is not a directory of yours alone.",
            f"It belongs to user {found.st_uid} with mode {stat.S_IMODE(found.st_mode):o}.",
            "Have it removed; cockpit makes it again.",
        )


def append_private(path: Path, line: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(line + "\n")
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def as_text(plain: dict[str, Any]) -> str:
    return json.dumps(plain, indent=1) + "\n"


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in the file, or None when there is no file. Raises CockpitError for garbage."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _unreadable(path, str(error)) from error
    if not isinstance(raw, dict):
        raise _unreadable(path, "it does not hold a JSON object")
    return raw


def remove(directory: Path) -> None:
    """Remove the directory with its content, if it exists."""
    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        return
    except OSError as error:
        raise CockpitError(f"{directory} cannot be removed.", str(error)) from error


def _runs_dir() -> Path:
    # Not TMPDIR: it may be long, and each user's view of it may differ from one login to the next.
    return Path("/tmp") / f"cockpit-{os.getuid()}"


def _unreadable(path: Path, why: str) -> CockpitError:
    return CockpitError(
        f"{path} cannot be read.", why, f"Remove the cluster: cockpit local down {path.parent.name}"
    )
