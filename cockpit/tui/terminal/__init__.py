"""What a terminal can show: cells, symbols, safe text."""
