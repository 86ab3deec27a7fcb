"""Text, JSON lines and CSV files: read once or followed, and written as whole sealed parts."""
