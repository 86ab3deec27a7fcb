"""Text, JSON lines and CSV files: read once or followed, written as sealed parts."""
