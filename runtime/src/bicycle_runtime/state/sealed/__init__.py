"""Sealed state: the changes of an epoch as change sets, their files, and references to them."""
