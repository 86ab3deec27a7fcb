"""The options of connectors as keys of a text.

``catalog`` finds the options class of a connector, ``keys`` derives the accepted keys from it, with
types, bounds, aliases and descriptions, and ``checking`` reports every wrong key with line and
column. Pipelines use it. The module knows no notation: a document supplies the positions.
"""
