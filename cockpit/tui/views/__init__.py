"""The views, a folder each: the view, its rows and its keys."""
