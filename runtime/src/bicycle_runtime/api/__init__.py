"""The REST API of the service: a table of routes, from which requests, document and pages are made.

Handlers decide nothing: they read words of a request, call ``service``, and answer with its values.
"""
