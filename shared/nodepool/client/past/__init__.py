"""The past: a client that sees the control plane as it was at a moment, read from the archive.

It cannot change anything, and nothing changes while it looks.
"""
