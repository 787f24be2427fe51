"""The guard: keeps a delta channel's thread a line, where a fork would mix two branches."""
