"""Savepoints of jobs: where they lie, what the driver does for one, what commands do with them."""
