"""Listening sockets of servers: which addresses they accept, TLS, and counted connections.

The process of ``bicycle up`` and the subscriber server listen by the same rules.
"""
