"""Files as streams: text, JSON lines and CSV, read once or followed, and written as whole sealed parts."""
