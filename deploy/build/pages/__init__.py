"""Build the reference pages from the classes."""
