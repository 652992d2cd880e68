"""Changes to the decisions, one at a time, each of which some test has to notice."""
