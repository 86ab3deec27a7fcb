"""SQL expressions: trees of functions that pyarrow computes on columns.

``tree`` builds expressions as plain data; ``functions`` is the table of their functions, with one
row per function; ``computing`` computes them and notes the records that fail. Nothing here parses
SQL except ``compiling``, which only planning imports.
"""
