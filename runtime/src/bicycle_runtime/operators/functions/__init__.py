"""Operators around the functions of a job, and the contexts of these functions."""
