"""Build rules of Prometheus from the list of metrics."""
