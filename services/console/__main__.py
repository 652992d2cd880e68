"""Runs the console: `python -m console`."""

from console.main import main

main()
