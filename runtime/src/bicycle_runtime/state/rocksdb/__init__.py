"""Local databases: the sealed entries of one operator in one subtask.

The folder is a cache of what is sealed, never more: what an epoch changes stays in memory until its
delta is sealed. ``rocksdict`` is loaded when the first folder is opened.
"""
