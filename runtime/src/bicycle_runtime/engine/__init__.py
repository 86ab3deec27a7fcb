"""The way from graph to epochs: the epoch loop, and the executors of stages.

``loop`` decides when an epoch runs, ``epoch`` is what running one means, and an executor does what
the epoch's orders say: ``spark``, or ``local``. The only room that imports ``pyspark``.
"""
