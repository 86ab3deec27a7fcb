"""The command ``bicycle``: reads words, calls ``jobs``, shows the answer.

A command is imported when it is used, and imports further modules when it runs, so that a command
that only reads metadata starts fast.
"""

from bicycle_runtime.cli.root import main

__all__ = ["main"]
