"""Runs the gateway: `python -m gateway`."""

from gateway.main import main

main()
