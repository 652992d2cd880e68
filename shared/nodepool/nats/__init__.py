"""The log and the read model on NATS JetStream."""
