"""Folding of an epoch's records to one content per key and window, before state."""
