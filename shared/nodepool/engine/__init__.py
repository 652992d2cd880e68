"""How a service, its log and its commits fit together; pure, driven by the runtime and by tests."""
