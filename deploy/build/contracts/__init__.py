"""Build the files that describe the bus and its objects to other programs."""
