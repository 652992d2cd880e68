"""What the house can carry, as ratios measured in one run."""
