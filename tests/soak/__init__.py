"""One hour of faults against one screen of cockpit on a test cluster."""
