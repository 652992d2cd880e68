"""Reads and writes archives: objects in a folder or in an object store, and segments as Parquet.

It needs the extra `archive` of this package.
"""
