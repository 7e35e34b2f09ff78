"""Cockpit: watch, scale, break and measure distributed training on Ray, from a terminal."""

__version__ = "0.1.0"
