"""What touches the world: the inventory file, and the controllers of machines."""
