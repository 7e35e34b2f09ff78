"""Steady-state checks before, during and after a fault."""
