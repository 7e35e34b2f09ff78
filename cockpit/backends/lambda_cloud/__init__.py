"""Clusters on instances of Lambda Cloud: launched, used by the backend `ssh`, and terminated."""
