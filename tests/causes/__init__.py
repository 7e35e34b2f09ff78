"""Ends of attempts and jobs whose cause is known, and what the verdict on them is."""
