"""The Pulsar backend: topics as streams, partitions as shards, ids as sequences.

Pulsar's client works on threads of its own, which know nothing of the event loop: ``consuming``
lets one thread per consumer wait for messages, and ``sending`` hears of receipts by callbacks.
"""
