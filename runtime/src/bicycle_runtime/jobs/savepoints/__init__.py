"""Savepoints of jobs: their location, the driver's part, and commands."""
