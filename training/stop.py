"""Why training cannot continue, and a restart would not help."""

from __future__ import annotations


class Stop(RuntimeError):
    """A message for the user who started the run: what is wrong, and what to do about it."""
