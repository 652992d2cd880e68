"""Computes what each page shows: pure, without clock, I/O or markup."""
