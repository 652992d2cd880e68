"""A connection to NATS: bytes, servers, credentials, and the errors of the bus."""
