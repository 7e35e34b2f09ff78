"""The main screen: the frame, and its keys."""
