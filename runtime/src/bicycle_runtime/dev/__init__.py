"""Tools for developers and tests: a local Kafka broker, a local Spark cluster.

Nothing that runs a job imports this room. It starts processes and fetches files, but only when it
is told to: importing it does neither.
"""
