"""The subscriber server: streams of any backend for WebSocket clients, and webhooks.

``bicycle stream serve`` is its door. A *feed* reads each address once for all clients; a *client*
has subscriptions, and a queue of its own; a *webhook* is posted what comes in one stream.
"""
