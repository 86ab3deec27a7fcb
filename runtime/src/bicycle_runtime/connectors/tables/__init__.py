"""Tables of Arrow columns: what sinks share whose output has columns."""
