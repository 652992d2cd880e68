"""Phases of a Node by their names: reading a document needs no models."""

from typing import Final

RESTARTING: Final = ("rebooting", "verifying")
"""The phases of a Node that reboots, or is verified after a boot.

They have deadlines of their own: a silence, or a problem that a reboot cures, counts after them.
"""
