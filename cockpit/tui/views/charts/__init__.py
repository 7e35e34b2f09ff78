"""View 3: the curves of a run."""
