"""Decoders of what others wrote, on documents that are broken in every way that is thought of."""
