"""Graph to stages to epochs: the epoch loop, and what executes a stage (Spark, or one process).

``loop`` decides when an epoch runs, ``epoch`` is what running one means, and an executor does what
the epoch's orders say: ``spark``, or ``local``. The only room that imports ``pyspark``.
"""
