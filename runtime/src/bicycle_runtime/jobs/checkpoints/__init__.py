"""The contents of a checkpoint directory: its epochs, and their sealed state."""
