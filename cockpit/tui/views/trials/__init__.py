"""View 7: the trials of Ray Tune."""
