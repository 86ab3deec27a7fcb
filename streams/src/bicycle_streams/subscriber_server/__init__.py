"""The subscriber server: any backend's streams for WebSocket clients and webhooks.

``bicycle stream serve`` starts ``server`` by module name. A *feed* reads each address once for all
clients. A *client* has subscriptions and a separate queue. A *webhook* receives the messages of one
stream as POST requests.
"""
