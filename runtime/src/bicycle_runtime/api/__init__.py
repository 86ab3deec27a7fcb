"""The REST API of the service: a table of routes for requests, document, pages.

Handlers decide nothing: they read words of a request, call ``service``, and answer with its values.
"""
