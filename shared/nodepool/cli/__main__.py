"""`python -m nodepool.cli` is the `nodepool` command."""

from nodepool.cli import main

main()
