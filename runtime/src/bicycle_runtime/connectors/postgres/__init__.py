"""PostgreSQL: a table as a sink, with epoch numbers in its transactions."""
