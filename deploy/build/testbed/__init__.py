"""A real Kubernetes on this machine, with a control plane and an agent beside it."""
