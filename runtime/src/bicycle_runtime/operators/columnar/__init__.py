"""Columns instead of records, for steps that work on fields of many records.

``choice`` alone says which steps of a job do so. ``records`` are what sources and windows give,
``arrays`` and ``keys`` what is computed with, ``fold`` and ``merge`` what a window does before and
behind the shuffle, ``chain`` runs the steps of one chain.
"""

from bicycle_sdk.graph import OperatorKind

__all__ = ["EXPRESSION_KINDS", "NO_COLUMNS"]

# What may compute an expression over the columns of any batch, without a window.
EXPRESSION_KINDS = (OperatorKind.MAP, OperatorKind.FILTER, OperatorKind.KEY_BY)
# Why most operators work on records: they would on any job like theirs, so nobody is told.
NO_COLUMNS = "no window, map or sink of its chain supports columns"
