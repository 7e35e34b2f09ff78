"""`cockpit drill …`."""
