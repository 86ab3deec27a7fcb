"""The Redis backend: each stream, or each shard of one, is a Redis stream.

``ids`` converts sequences and shards to names of Redis, ``connection`` survives restarts of the
server, ``sending`` sends pipelines, ``consuming`` reads alone, and ``sharing`` reads in a group.
"""
