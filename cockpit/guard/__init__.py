"""What to do about a hang or a repeated failure, without a person."""
