"""Kafka: topics read in planned ranges of offsets, and written with a guarantee."""
