"""`python -m training.jobs` writes catalogue.json from the jobs' settings."""

from __future__ import annotations

from training.jobs.catalogue import FILE, render

FILE.write_text(render())
print(f"wrote {FILE}")
