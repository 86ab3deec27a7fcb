"""Calls of user functions of any kind: over a batch, in flight, with failures."""
