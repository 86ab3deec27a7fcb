"""The Pulsar backend: a stream is a topic, a shard a partition, and a sequence a message id.

Pulsar's client works on threads of its own, which know nothing of the event loop: ``consuming``
lets one thread per consumer wait for messages, and ``sending`` hears of receipts by callbacks.
"""
