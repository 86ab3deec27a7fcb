"""Tables of lakes: files with a log that says which of them count."""
