"""A cell on a disk of fixed size: everything is killed at random, and nothing may be lost."""
