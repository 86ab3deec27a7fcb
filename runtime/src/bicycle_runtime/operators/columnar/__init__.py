"""Columns in place of records: what works on fields of many records at once.

``choice`` alone says which steps of a job do so. ``records`` are what sources and windows give,
``arrays`` and ``keys`` what is computed with, ``fold`` and ``merge`` what a window does before and
behind the shuffle, ``chain`` runs the steps of one chain.
"""

__all__ = ["NO_WINDOW"]

# Why most operators work on records: they would on any job like theirs, so nobody is told.
NO_WINDOW = "no window folds what its chain gives"
