"""Tests a cell on a disk of fixed size: processes are killed, and no message may be lost."""
