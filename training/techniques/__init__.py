"""Techniques that any job can enable, one module each, applied from outside of the model."""
