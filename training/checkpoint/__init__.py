"""Checkpoints that say of themselves whether they are whole.

`snapshot` takes a loop's state aside in memory, `part` writes one rank's share of it with a
`manifest`, `storage` is the run's directory, `restore` finds what to go on from.
"""
