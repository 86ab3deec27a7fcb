"""Sealed state: the changes of an epoch as change sets, files and references."""
