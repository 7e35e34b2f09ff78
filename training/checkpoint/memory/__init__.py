"""Checkpoints in the memory of the nodes, between those on the storage.

Each rank copies its state, its shard, into memory that its node's holder owns (`holder`), while the
next step computes (`writer`). The holder computes the digest and sends a copy to the holder of
another node. After a failure, the ranks resume from the newest step whose shards the remaining
holders have, all of them (`sets`, `restored`), else from the storage. `on_ray` starts the holders.
"""
