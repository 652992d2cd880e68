"""The pure core that connects a service, its log and its commits; run by the runtime and tests."""
