"""A search over a job's settings, on Ray Tune.

`space` says which settings and how they are drawn, `schedulers` which trials are stopped, `alone`
and `ranks` train one trial, `best` tells what came of it.
"""
