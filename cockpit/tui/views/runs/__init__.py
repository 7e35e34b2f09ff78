"""The view of all runs: recordings, and the live runs of the cluster on screen."""
