"""Operators on columns, for steps that work on fields of many records.

``choice`` decides which steps of a job use columns, ``chain`` runs the steps of one chain, ``fold``
aggregates per key and window before the shuffle, and ``merge`` joins the results after it.
"""

from bicycle_sdk.graph import OperatorKind

__all__ = ["EXPRESSION_KINDS", "NO_COLUMNS"]

# What may compute an expression over the columns of any batch, without a window.
EXPRESSION_KINDS = (OperatorKind.MAP, OperatorKind.FILTER, OperatorKind.KEY_BY)
# Why most operators work on records: they would on any job like theirs, so nobody is told.
NO_COLUMNS = "no window, map or sink of its chain supports columns"
