"""Runs the archiver: `python -m archiver`."""

from archiver.main import main

main()
