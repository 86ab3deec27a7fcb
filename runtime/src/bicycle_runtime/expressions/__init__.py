"""Expressions over the fields of records, computed on columns.

``function_reading`` turns a Python function into an expression; ``evaluation`` computes it with the
results of Python, and ``mapping`` creates the records of a map. SQL texts have other semantics:
``compiling`` parses and checks a text and derives its types; ``kernel`` computes it on Arrow
columns. The libraries of SQL texts are an extra, and only jobs with such texts import them.
"""
