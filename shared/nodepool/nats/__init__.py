"""The log and the read model on NATS JetStream, in three rooms: `wire`, `log` and `objects`."""
