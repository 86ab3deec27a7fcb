"""Folding the records of an epoch into one content per key and window, before state is touched."""
