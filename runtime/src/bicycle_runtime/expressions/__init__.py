"""SQL expressions over the fields of records: checked early, computed on columns.

``compiling`` reads a text, refuses what is no function of one record, and settles types; ``kernel``
computes on Arrow columns. The libraries behind both are an extra, and only jobs with expressions
import them.
"""
