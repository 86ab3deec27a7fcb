"""Spark as the executor of epochs: its Java process, its settings, and one linear job per epoch."""
