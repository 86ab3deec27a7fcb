"""PostgreSQL: a table as a sink, its epochs marked in the transaction that writes them."""
