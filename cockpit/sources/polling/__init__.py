"""How often sources poll."""
