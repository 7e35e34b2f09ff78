"""Table rows from the store. Pure: independent of the screen."""
