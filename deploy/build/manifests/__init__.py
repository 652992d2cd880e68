"""Writes the files, and the parts of files between marks, that follow from the list of services."""
