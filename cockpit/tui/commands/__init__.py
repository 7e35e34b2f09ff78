"""Commands after `:`, and forms."""
