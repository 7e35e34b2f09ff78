"""The numbers of a run: goodput, bottleneck, ETA, cost."""
