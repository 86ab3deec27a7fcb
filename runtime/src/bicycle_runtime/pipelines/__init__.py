"""Jobs in a file, which is read, checked and built by calls of the SDK.

A file has the parts of a plugin in Python: sources, operators, sinks. It has one model and two
notations, TOML and YAML. ``documents`` reads a notation and knows the place of each key, ``model``
declares the keys, and ``bicycle_runtime.endpoints`` derives those of connectors and finds errors.
``nodes`` brings the short form and the form with vertices and edges to one list, ``building`` makes
the graph. Nothing here runs a job: the child process that extracts graphs builds this one, too.
"""
