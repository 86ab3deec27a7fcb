"""Local databases: the sealed entries of one operator in one subtask.

The folder is a cache of the sealed state, never more: an epoch's changes stay in memory until its
delta is sealed. ``rocksdict`` is loaded when the first folder is opened.
"""
