"""What is on the bus: the model and its grammar, and every message."""
