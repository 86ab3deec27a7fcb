"""What runs on workers for each record: reading, chains of functions, exchange, writing.

The same code runs in a Spark task and in one process. Importing it opens no file, port or thread.

Rooms, from the bottom: ``calling`` (user code) and ``counting``, ``functions`` and above it
``windows`` (the operators), ``tasks`` (what makes and runs them). ``io`` is what connectors know.
"""
