"""What follows from the list of services: manifests, and parts of files between two marks."""
