"""Stores, which keep a table at the sealed state, and readers of sealed state."""
