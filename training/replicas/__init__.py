"""Data-parallel training that continues with fewer replicas when one is lost.

Each replica is one rank with the whole model. A server next to Ray Train's controller decides which
replicas are the quorum of each step (`membership`, `server`); a step is committed when all of them
have the sum of the gradients. When a replica is lost, the others repeat the sum without it, from
the gradients that they have, and compute only its examples (`shares`). A replica that joins
receives the state of another one from its memory (`snapshots`).
"""
