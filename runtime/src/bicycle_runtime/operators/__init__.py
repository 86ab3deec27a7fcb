"""What runs on workers for each record: reading, chains of functions, exchange, writing.

The same code runs in a Spark task and in one process. Importing it opens no file, port or thread.
"""
