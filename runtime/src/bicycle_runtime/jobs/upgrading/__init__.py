"""Another version of a running job's plugin: planned, started in its place, watched, taken back."""
