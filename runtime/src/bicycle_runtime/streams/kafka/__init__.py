"""The Kafka backend: a stream is a topic, a shard a partition, and a sequence an offset.

Kafka's client works on threads of its own. ``cluster`` asks about topics, ``sending`` hears what
was delivered, and ``consuming`` lets one thread per consumer wait for messages.
"""
