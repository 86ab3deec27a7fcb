"""Discovery of plugins, and extraction of their job graphs in child processes.

``discovery`` reads entry-point metadata; ``extract`` and ``check`` start a fresh child process per
plugin (``child``) and read its answer from a pipe of its own. This module imports nothing, since
the child pays for every import here.
"""
