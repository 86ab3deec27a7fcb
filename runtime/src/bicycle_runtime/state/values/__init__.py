"""Stored values: schemas of types, their sealed versions, and codecs."""
