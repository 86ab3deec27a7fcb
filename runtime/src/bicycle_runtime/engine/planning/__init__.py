"""The plan of a job bundle: chains, levels, sources, sinks. Before there is any state."""
