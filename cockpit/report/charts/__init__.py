"""The charts of a report, as inline SVG or text."""
