"""Measurements of training on the available hosts, and recommendations.

Each part is a module: `measure` returns a frozen dataclass, `section` creates a table, plots and
findings from it. Compared variants alternate within one run, so that other load on the host affects
all of them equally.
"""
