"""The subcommands of `nodepool`."""
