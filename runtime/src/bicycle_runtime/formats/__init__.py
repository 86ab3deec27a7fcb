"""Formats of values: a codec per name, for connectors and the stream toolkit.

``registry`` finds a format by its name, ours or an extension's; each of the other modules holds one
family. A codec knows one value at a time: where one ends and the next begins is up to who uses it.
"""
