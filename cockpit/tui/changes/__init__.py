"""What a user changes from the screen: ask first, do it, report the result."""
