"""The epoch loop: when an epoch runs, its size, and the work between two epochs."""
