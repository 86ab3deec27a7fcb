"""One module for each group of pages: what it reads, and which template shows it."""
