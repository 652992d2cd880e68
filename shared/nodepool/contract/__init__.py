"""What is on the bus: the model and its grammar, every message, and its subject and bytes."""
