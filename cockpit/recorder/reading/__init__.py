"""Reading recordings: store, replay, export."""
