"""What is counted and measured since the log began; the status does not depend on it."""
