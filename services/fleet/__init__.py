"""What do the machines do? A simulated data centre, at the edge of the system."""
