"""The operating system's refusals as errors for people."""

from __future__ import annotations

import errno
import os

from cockpit.model.error import CockpitError, NotAllowedError
from cockpit.model.text import one_line

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
PLACE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP)
MOVE = "Its own files are in XDG_STATE_HOME and XDG_CACHE_HOME."


def explain(error: OSError) -> CockpitError | None:
    """What a file or the machine refused, or None when it is nothing that a user can fix."""
    name = error.filename2 or error.filename
    what = one_line(os.fsdecode(name)) if isinstance(name, (str, bytes)) else ""
    why = f"{error.strerror or type(error).__name__}."
    if error.errno in FULL:
        return CockpitError(f"{what or 'The output'} cannot be written.", why, "Make room there.")
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN):
        return CockpitError("This machine gives cockpit no more.", why, "See: ulimit -a")
    if not what:
        return None
    if error.errno in FORBIDDEN:
        return NotAllowedError(f"cockpit may not use {what}.", why, MOVE)
    if error.errno in PLACE:
        return CockpitError(f"cockpit cannot use {what}.", why, MOVE)
    return None
