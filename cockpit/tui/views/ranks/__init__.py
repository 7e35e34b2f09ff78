"""View 2: the ranks, and one rank's page."""
