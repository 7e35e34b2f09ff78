"""The UI. Sets Textual's delay for keys before its first import."""

import os

# Textual paints at most so often a second; a key waits half of that time on average. What changes
# by itself is drawn on a clock of its own, so this costs nothing at rest.
os.environ.setdefault("TEXTUAL_FPS", "240")
