"""Kinds of cluster, one package or module each, behind the one Protocol in `protocol`."""
