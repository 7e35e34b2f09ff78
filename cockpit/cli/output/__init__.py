"""Tables, JSON and streams that verbs print."""
