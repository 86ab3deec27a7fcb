"""HTTP: records as bodies of requests to a server."""
