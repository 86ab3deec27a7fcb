"""The Pulsar backend: topics as streams, partitions as shards, ids as sequences.

Pulsar's client has its own threads, which do not use the event loop: in ``consuming``, one thread
per consumer waits for messages, and ``sending`` receives receipts by callbacks.
"""
