"""Techniques that any job can switch on, one module each, applied from outside of the model."""
