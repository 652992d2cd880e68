"""Rules of Prometheus that are made from the list of metrics."""
