"""Tables that hold state in memory by key group, and track changes of an epoch."""
