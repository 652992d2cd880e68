"""The log on JetStream: streams, commits, and the reader."""
