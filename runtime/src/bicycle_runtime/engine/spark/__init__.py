"""Spark as the executor of epochs: its Java process, settings, and jobs."""
