"""Graph to stages to epochs: the epoch loop, and what executes a stage (Spark, or one process).

The only room that imports ``pyspark``.
"""
