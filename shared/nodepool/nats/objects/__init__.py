"""What is made of the log and stored beside it: the read model and the snapshots."""
