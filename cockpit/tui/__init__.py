"""The UI. Sets Textual's delay for keys before its first import."""

import os

# Limit Textual's frame rate: a key waits half a frame on average. Automatic updates are drawn on a
# separate clock, so that this costs nothing while the UI is idle.
os.environ.setdefault("TEXTUAL_FPS", "240")
