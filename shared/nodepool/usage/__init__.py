"""How the time of Nodes is used: what counts as used, idle, lost or not billable, and the sums."""
