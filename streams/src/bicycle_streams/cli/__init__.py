"""The command ``bicycle`` with its group ``stream``, and parts of all commands.

A distribution that brings the whole command line replaces the root by an entry point.
"""
