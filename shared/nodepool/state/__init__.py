"""Immutable, ordered values that the states of services consist of; a change makes a new value."""
