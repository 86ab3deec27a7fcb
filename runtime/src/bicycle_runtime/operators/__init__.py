"""What runs on workers for each record: sources, chains of functions, exchange, state access.

Sinks.

The same code runs in a Spark task and in one process. Importing it opens no file, port or thread.
"""
