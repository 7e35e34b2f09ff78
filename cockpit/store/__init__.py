"""A plain reducer over events, with bounded ring buffers, and selectors that read it."""
