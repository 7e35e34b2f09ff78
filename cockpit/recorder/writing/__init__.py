"""Writing recordings while a session is watched."""
