"""Talks to the bus: takes commands in, gives answers out, and keeps the read model current."""
