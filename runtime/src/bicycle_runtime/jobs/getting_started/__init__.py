"""The first steps of a user: a check of this machine, and a new plugin project."""
