"""The contents of a checkpoint directory, for those who look into it: epochs, and sealed state."""
