"""From the store to rows of a table. Pure: nothing here knows a screen."""
