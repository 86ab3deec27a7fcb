"""Tables of Arrow columns: the base of sinks with columns."""
