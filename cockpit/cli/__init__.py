"""The command line: `main` finds the verb, one module a verb does it."""
