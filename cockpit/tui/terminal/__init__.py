"""Terminal output: cells, symbols, safe text."""
