"""Stored values: schemas of types, the schema versions they were sealed in, and codecs."""
