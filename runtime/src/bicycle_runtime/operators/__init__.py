"""The work on each record in workers: reading, function chains, exchange, writing.

The same code runs in a Spark task and in one process. Importing it opens no file, port or thread.

Rooms, from the bottom: ``calling`` (user code) and ``counting``, ``functions`` (operators),
``folding`` and ``windows`` (operators with windows), ``tasks`` (construction and execution of
operators). ``io`` is the interface for connectors.
"""
