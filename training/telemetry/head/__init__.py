"""The aggregator on the head node, and the files of the stream."""
