"""Kafka: topics read by planned ranges of offsets, and written at least once or exactly once."""
