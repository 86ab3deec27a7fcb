"""Jobs in a file, which is read, checked and built by calls of the SDK.

A file has the parts of a plugin in Python: sources, operators, sinks. It has one model and two
notations, TOML and YAML. ``documents`` parses a file and records the position of each key,
``model`` declares the keys, and ``bicycle_runtime.endpoints`` derives the keys of connectors and
finds errors. ``nodes`` converts the short form and the form with vertices and edges to one list of
nodes, and ``building`` builds the graph. No job runs here: the child process that extracts the
graphs of plugins also builds the graphs of pipelines.
"""
