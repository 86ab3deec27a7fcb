"""From a job bundle to what runs: chains, levels, sources, sinks. Before there is any state."""
