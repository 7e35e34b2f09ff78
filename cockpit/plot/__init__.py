"""The arithmetic of charts, shared by the screen and the reports."""
