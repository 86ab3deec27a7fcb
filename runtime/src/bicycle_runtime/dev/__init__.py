"""Tools for developers and tests: a real Kafka broker and a Spark cluster on this machine.

Nothing that runs a job imports this room. It starts processes and fetches files, but only when it
is told to: importing it does neither.
"""
