"""The way from graph to epochs: the epoch loop, and the executors of stages.

``loop`` decides when an epoch runs, ``epoch`` defines the steps of an epoch, and an executor
carries out the epoch's orders: ``spark``, or ``local``. The only room that imports ``pyspark``.
"""
