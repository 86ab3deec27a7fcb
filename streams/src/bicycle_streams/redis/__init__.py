"""The Redis backend: each stream, or each shard of one, is a Redis stream.

``ids`` says how sequences and shards are named there, ``connection`` survives a server that goes
and comes, ``sending`` pipelines, ``consuming`` reads alone and ``sharing`` in a group.
"""
