"""Tables that hold state in memory, per key group, and know what changed since the last epoch."""
