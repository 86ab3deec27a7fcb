"""The plugin of a job: the origin of its code, and its graph."""
