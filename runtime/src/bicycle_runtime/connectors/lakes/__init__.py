"""Tables of lakes: files with a log of the valid ones."""
