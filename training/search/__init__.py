"""A search over a job's settings, on Ray Tune.

`space` defines which settings are sampled and how, `schedulers` which trials are stopped,
`single_process_trial` and `multi_rank_trial` train one trial, `best` reports the result.
"""
