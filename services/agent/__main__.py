"""Runs the agent of a Kubernetes cluster: `python -m agent`."""

from agent.host.process import main

main()
