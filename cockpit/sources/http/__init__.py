"""Bounded HTTP answers."""

import sys
from importlib.util import find_spec

# httpcore 1.0 imports sniffio eight times a request, to ask for the event loop's library. If it is
# not installed, each import searches all of sys.path: a third of the time of a short request.
if "sniffio" not in sys.modules and find_spec("sniffio") is None:
    sys.modules["sniffio"] = None  # type: ignore[assignment]  # an import fails at once
