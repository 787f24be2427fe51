"""The subcommands of `deerflow-saver bench`."""
