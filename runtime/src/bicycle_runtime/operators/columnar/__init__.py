"""Aggregation on columns, for windows.

``field_columns`` describes the aggregates of a window as columns, ``fold`` aggregates per key and
window before the shuffle, and ``merge`` joins the results after it.
"""

__all__ = ["NO_COLUMNS"]

# Why most operators work on records: they would in any job like theirs, so that people do not read
# about it.
NO_COLUMNS = "no window, map or sink of its chain supports columns"
