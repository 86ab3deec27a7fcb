"""Listening sockets of servers: allowed addresses, TLS, counted connections.

The process of ``bicycle up`` and the subscriber server listen by the same rules.
"""
