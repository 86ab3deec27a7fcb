"""What is sealed: the changes of an epoch as sections, their files, and references to them."""
