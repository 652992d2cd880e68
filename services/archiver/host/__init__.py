"""Reads the bus, and writes segments and snapshot sets into the archive."""
