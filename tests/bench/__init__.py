"""What the control plane can carry, as ratios measured in one run."""
