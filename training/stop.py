"""Why training cannot go on, and another attempt could not either."""

from __future__ import annotations


class Stop(RuntimeError):
    """A sentence for whoever started the run: what is wrong, and what to do about it."""
