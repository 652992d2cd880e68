"""Runs the agent of a Kubernetes cluster: `python -m agent`."""

from agent.main import main

main()
