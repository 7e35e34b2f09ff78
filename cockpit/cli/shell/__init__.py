"""What shells and manual readers ask for: completion, the manual page, versions."""
