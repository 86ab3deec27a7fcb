"""What stored values look like: schemas of types, the forms they were sealed in, and codecs."""
