"""`cockpit` without a verb: the terminal UI."""
