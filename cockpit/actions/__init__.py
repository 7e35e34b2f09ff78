"""Every change that a user can make, with its audit line."""
