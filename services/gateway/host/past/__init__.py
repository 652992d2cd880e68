"""The past: a child process rebuilds a moment, and the gateway answers from what it has rebuilt."""
