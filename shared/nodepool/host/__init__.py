"""Running one replica of a service as a process: runtime, telemetry, settings."""
