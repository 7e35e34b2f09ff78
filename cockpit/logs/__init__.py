"""The logs of one run as one: times of lines, a merge by time, and repeated lines folded. Pure."""
