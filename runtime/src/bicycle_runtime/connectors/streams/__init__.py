"""Streams behind an address as sources and sinks of jobs: Redis, files, others.

An *input* says how far each shard has come and reads a range of sequences; a *target* writes one
epoch with its number, at once or not at all. Source and sink are the same for all backends.
"""
