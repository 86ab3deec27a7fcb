"""Which store keeps a table at the sealed state, and reading what is sealed without a table."""
