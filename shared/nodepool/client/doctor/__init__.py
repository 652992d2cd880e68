"""The faults of an installation that are visible on the bus, in the order in which to fix them."""
