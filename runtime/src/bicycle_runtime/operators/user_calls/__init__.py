"""Calling user functions of any kind, over a batch, many in flight, and settling what fails."""
