"""The faults of the catalogue, one module a family."""
