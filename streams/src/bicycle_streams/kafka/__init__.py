"""The Kafka backend: streams are topics, shards partitions, sequences offsets.

Kafka's client works on threads of its own. ``cluster`` asks about topics, ``sending`` hears what
was delivered, and ``consuming`` lets one thread per consumer wait for messages.
"""
