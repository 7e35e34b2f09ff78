"""Why a run makes no progress, from the stacks and collectives of its ranks."""
