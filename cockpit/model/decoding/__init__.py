"""Values of unknown origin, decoded within limits: documents, numbers, times and switches."""
