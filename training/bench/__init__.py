"""Measurements of training on the machines at hand, and what follows from them.

Each part is a module: `measure` returns a frozen dataclass, `told` makes a table, plots and
findings of it. What is compared takes turns within one run, so that whatever else the machine does
meets all alike.
"""
