"""What is called for each route, by subject."""
