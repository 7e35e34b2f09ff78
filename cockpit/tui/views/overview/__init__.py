"""View 1: the cluster, the run and its diagnosis."""
