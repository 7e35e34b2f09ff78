"""Checkpoints that can be verified to be complete.

`snapshot` copies a loop's state in memory, `rank_part` writes one rank's share of it with a
`manifest`, `storage` is the run's directory, `restore` finds the checkpoint to resume from.
"""
