"""State that may be larger than memory: sealed entries in a local RocksDB, hot ones in Python.

The folder on disk is a cache of what is sealed, never more: what an epoch changes stays in memory
until its delta is sealed. ``rocksdict`` is loaded when the first folder is opened.
"""
