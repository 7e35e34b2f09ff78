"""A run as a report: one document, written as HTML, Markdown or JSON."""
