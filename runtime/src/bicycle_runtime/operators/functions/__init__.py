"""Operators around the functions of a job, and the contexts in which these are called."""
