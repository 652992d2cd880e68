"""The whole control plane on one machine."""
