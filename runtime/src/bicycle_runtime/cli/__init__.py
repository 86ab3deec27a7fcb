"""The command ``bicycle``: reads words, calls ``jobs``, shows the answer.

Commands are loaded when they are used, and each loads what it needs when it runs, so that a command
that only reads metadata starts fast.
"""

from bicycle_runtime.cli.root import main

__all__ = ["main"]
