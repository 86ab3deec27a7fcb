"""What the author of a Bicycle job imports."""
