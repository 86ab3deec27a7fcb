"""The options of connectors as keys of a text.

``catalog`` finds the options class of a connector, ``keys`` derives the accepted keys from it, with
types, bounds, aliases and descriptions, and ``checking`` reports every wrong key with line and
column. ``sources`` and ``sinks`` have the keys of each kind of source and sink, ``job_settings``
those of the job. Pipelines and SQL files use them. The room knows no notation: a document supplies
the positions.
"""
