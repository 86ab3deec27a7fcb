"""SQL files: statements that are lowered to calls of the SDK.

``dialect`` splits a text into statements and parses their queries; ``statements`` reads
definitions, such as CREATE TABLE. ``catalog`` holds the tables, with the options that the
descriptors of connectors declare. ``plans`` binds the names of queries and checks their types,
``lowering`` turns plans into streams. All of this runs in the process that builds the graph of a
job; workers only compute the expressions of ``bicycle_runtime.expressions.sql``.
"""
